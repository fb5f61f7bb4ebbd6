//! Jobs whose root directory is an unpacked image, as root and as an ordinary user.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::case::{copy_program, each, is_running, signal, wait_until, Case};
use crate::linking::NO_NAMESPACES;
use serde_json::json;

const PROGRAMS: [&str; 5] = ["sh", "cat", "ls", "sleep", "id"];
const MOUNT_POINTS: [&str; 6] = ["proc", "sys", "dev", "tmp", "var/tmp", "sandbox"];

/// With these programs and the libraries that they load, and nothing else.
fn image(case: &Case) {
    let root = case.path("image");
    for name in MOUNT_POINTS.iter().chain(&["bin", "etc"]) {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["etc/resolv.conf", "etc/hosts"] {
        fs::write(root.join(name), "").unwrap();
    }
    for name in PROGRAMS {
        let found = ["/bin", "/usr/bin"].iter().map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists()).unwrap();
        copy_program(&found, &root.join("bin").join(name));
        let loads = Command::new("ldd").arg(&found).output().unwrap().stdout;
        for word in String::from_utf8(loads).unwrap().split_ascii_whitespace().filter(|word| word.starts_with('/')) {
            let place = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            copy_program(word, &place);
        }
    }
    fs::write(root.join("etc/of-the-image"), "it is\n").unwrap();
}

fn contained(case: Case, script: &str) -> Case {
    image(&case);
    case.make_dir("sandbox/.tmp");
    let (root, scratch) = (case.path("image"), case.path("sandbox/.tmp"));
    case.shell(script)
        .set("container", json!({"root_dir": root, "sandbox_at": "/sandbox"}))
        .set("scratch_dir", json!(scratch))
        .set("env", json!({"PATH": "/bin"}))
}

#[test]
fn a_job_finds_its_image_and_its_sandbox_and_nothing_of_the_host() {
    each(|case| {
        case.make_file("input", "linked\n", 0o644);
        let script = "ls -a / > listed; cat /etc/of-the-image given > read; echo x > /tmp/t; ls .tmp >> read; id -u > user; pwd >> read";
        let case = contained(case.link("input", "given"), script).set("isolate", json!(true));
        let report = case.report();
        assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("exited"), &json!(0)), "{} {report}", case.text("err"));
        assert_eq!(case.text("sandbox/read"), "it is\nlinked\nt\n/sandbox\n");
        for name in ["home", "root", "usr", "mnt", "srv"] {
            let host = Path::new("/").join(name);
            assert!(
                case.path("image").join(name).exists() || !case.text("sandbox/listed").split('\n').any(|found| found == name),
                "{host:?}"
            );
        }
        assert!(!case.path("image/sandbox/listed").exists() && fs::read_dir(case.path("image/tmp")).unwrap().count() == 0);
    });
}

#[test]
fn nothing_is_written_to_an_image_and_nothing_of_the_host_is_reached_again() {
    let script = r#"
for place in / /etc /bin; do echo x > "$place/new" && echo "wrote in $place" > broken; done
echo x > given && echo "wrote to an input" > broken
cat /proc/1/root"$AT"/secret > broken2 2>/dev/null
cat "$AT/secret" /sandbox/../"$AT"/secret /proc/self/cwd/../secret >> broken2 2>/dev/null
echo x > /dev/null; echo said > /dev/stdout
true"#;
    for isolate in [true, false] {
        each(|case| {
            case.make_file("secret", "the host's\n", 0o644);
            case.make_file("input", "linked\n", 0o644);
            let at = case.root.path().to_str().unwrap().to_string();
            let case =
                contained(case.link("input", "given"), script).set("isolate", json!(isolate)).set("env", json!({"PATH": "/bin", "AT": at}));
            let report = case.report();
            assert_eq!(report["exit_code"], json!(0), "{} {report}", case.text("err"));
            assert!(!case.path("sandbox/broken").exists(), "{}", case.text("sandbox/broken"));
            assert_eq!((case.text("sandbox/broken2").as_str(), case.text("out").as_str()), ("", "said\n"), "{}", case.text("err"));
        });
    }
}

#[test]
fn ends_are_told_as_without_a_container() {
    each(|case| {
        let report = contained(case, "exit 7").report();
        assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("exited"), &json!(7)));
    });
    each(|case| {
        let report = contained(case, "kill -9 $$").report();
        assert_eq!((&report["outcome"], &report["signal"]), (&json!("signalled"), &json!(9)));
    });
    each(|case| {
        let case = contained(case, "").set("argv", json!(["no-such-program"]));
        assert_eq!(case.report()["code"], json!("program_not_found"));
    });
    each(|case| {
        let token = case.token(1);
        let case = contained(case, &format!("sleep {token} & sleep {token}")).set("grace_s", json!(0.2));
        let mut reaper = case.start();
        wait_until("the job to run", || is_running(&token));
        signal(reaper.id(), "TERM");
        reaper.wait().unwrap();
        assert_eq!(case.result()["outcome"], json!("killed"));
        assert!(!is_running(&token), "and its children with it");
    });
}

#[test]
fn an_image_cannot_lead_a_mount_elsewhere() {
    each(|case| {
        case.make_dir("elsewhere");
        let elsewhere = case.path("elsewhere");
        let case = contained(case, "true");
        fs::remove_dir(case.path("image/proc")).unwrap();
        symlink(elsewhere, case.path("image/proc")).unwrap();
        let report = case.report();
        assert_eq!((&report["outcome"], &report["code"]), (&json!("not_started"), &json!("container_failed")), "{report}");
    });
}

#[test]
fn a_host_without_namespaces_says_that_it_runs_no_containers() {
    let case = contained(Case::new(crate::case::As::Ordinary), "true");
    let output = case.run_command(&NO_NAMESPACES).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(case.result()["code"], json!("no_container"), "{}", case.result());
}
