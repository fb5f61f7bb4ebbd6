// The S3 server of the tests: versitygw over a directory, without what its own program brings besides
// (its integration tests, its client commands, its back ends for Azure and other servers), which is
// half of what a build compiles. One rule: the words are those of versitygw itself, so that tests,
// benchmarks and images take either.
//
//	versitygw [--quiet] [--keep-alive] [--health PATH] --port ADDRESS posix [--sidecar DIR] ROOT
//
// Keys and region: ROOT_ACCESS_KEY, ROOT_SECRET_KEY, VGW_REGION.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(words []string) error {
	common := flag.NewFlagSet("versitygw", flag.ExitOnError)
	port := common.String("port", ":7070", "listen address")
	quiet := common.Bool("quiet", false, "no log of requests")
	keepAlive := common.Bool("keep-alive", false, "connections are kept")
	health := common.String("health", "", "path that says that the server is there")
	common.Parse(words)
	if common.Arg(0) != "posix" {
		return fmt.Errorf("the one back end here is posix, not %q", common.Arg(0))
	}
	own := flag.NewFlagSet("posix", flag.ExitOnError)
	sidecar := own.String("sidecar", "", "directory for metadata, instead of extended attributes")
	own.Parse(common.Args()[1:])
	if own.NArg() != 1 {
		return fmt.Errorf("name one directory, not %d", own.NArg())
	}
	root := own.Arg(0)
	options := posix.PosixOpts{SideCarDir: *sidecar, Concurrency: 5000, CopyObjectThreshold: 5 << 30}
	options.SetNewDirPerm(0o755)
	options.SetNewFilePerm(0o644)
	var storer meta.MetadataStorer = meta.XattrMeta{}
	if *sidecar != "" {
		beside, err := meta.NewSideCar(*sidecar)
		if err != nil {
			return err
		}
		storer = beside
	} else if err := (meta.XattrMeta{}).Test(root); err != nil {
		return err
	}
	store, err := posix.New(root, storer, options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Region:         os.Getenv("VGW_REGION"),
		Ports:          []string{*port},
		MaxConnections:    250000,
		MaxRequests:    100000,
		MultipartMaxParts: 10000,
		Quiet:          *quiet,
		KeepAlive:      *keepAlive,
		HealthPath:     *health,
	})
}
