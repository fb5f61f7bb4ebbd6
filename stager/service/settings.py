"""Settings: command line, then environment, then the configuration file, then defaults.

May know: the model, how nodes are named. One rule: the only reader of the environment and of the configuration file; everything else is
given values.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stager.adapters.node_place import NodePlace, node_places
from stager.model.errors import InvalidInput, Refused
from stager.model.keep_limits import KeepLimits
from stager.model.units import parse_duration_s, parse_size_bytes

FREE_SHARE = 0.8
IDLE_EXIT_S = 5.0
SCRUB_BYTES_PER_S = 16 * 2**20
SCRUB_EVERY_S = 7 * 86_400.0
GONE_AFTER_S_MIN = 60.0
KEEP_FAILED_BYTES = 5_000_000_000
KEEP_RESULTS_BYTES, KEEP_RESULTS_S = 20_000_000_000, 14 * 86_400.0
# Of the files beside a workflow that a submit brings along.
DIRECTORY_BYTES_MAX = 256 * 2**20
CONFIG_KEYS = frozenset(
    """
    state_dir capacity cores memory idle_exit scrub_rate scrub_every keep_failed nodes copies pool gone_after reuse notify keep_results
    keep_results_for keep_images keep_environments prices topology
    """.split()
)


STORAGE_LISTEN = "127.0.0.1:7434"
STORAGE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Of the objects that `stager serve` keeps for its tenants. `url`: what they are told instead of the address."""

    size_bytes: int
    listen: str = STORAGE_LISTEN
    url: str = ""
    trust_network: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one scheduler. `memory_bytes` None: jobs' memory is not watched. `capacity_given` False: it is what is free on the disk
    just now. `scrub_bytes_per_s` 0: the I/O node does not scrub. `tenants_file` None: tenants.toml of the state directory.
    `storage` None: no objects are kept. `keep_failed_bytes` 0: no sandbox of a job that failed is.
    `nodes`: I/O nodes besides the embedded one, which somebody else started. `copies`: on how many nodes what jobs make is to be, where
    a submit does not say. `cluster_listen`: where hosts that join call; None: none can.
    `pool`: the address of the Dask scheduler whose hosts run jobs; empty: jobs run here. `hosts_of`: the tenant that has that pool for
    itself, for plans of its runs. `directory_bytes_max`: of the files that a
    tenant's submit may bring along.
    `gone_after_s`: nodes and hosts that are silent for so long are given up; None: by a person's word alone. `reuse` False: a submit that
    does not say runs all jobs. `keep_results_bytes`: of each node, how much of what jobs made stays there for later runs, for
    `keep_results_s`; 0: nothing. `keep`: how much stays of what was made for jobs and none uses. `notify_file` None:
    notify.toml of the state directory.
    `prices_file`: of budgets; None: the table of this version. `topology_file`: what the nodes here are, for money; None: nobody said.
    """

    state_dir: Path
    capacity_bytes: int
    cores: int
    memory_bytes: int | None = None
    idle_exit_s: float = IDLE_EXIT_S
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    umask: int = 0o022
    capacity_given: bool = False
    scrub_bytes_per_s: int = SCRUB_BYTES_PER_S
    scrub_every_s: float = SCRUB_EVERY_S
    tenants_file: Path | None = None
    storage: StorageSettings | None = None
    keep_failed_bytes: int = KEEP_FAILED_BYTES
    nodes: tuple[NodePlace, ...] = ()
    copies: int = 1
    pool: str = ""
    hosts_of: str = ""
    cluster_listen: tuple[str, int] | None = None
    directory_bytes_max: int = DIRECTORY_BYTES_MAX
    gone_after_s: float | None = None
    reuse: bool = True
    keep_results_bytes: int = KEEP_RESULTS_BYTES
    keep_results_s: float = KEEP_RESULTS_S
    keep: KeepLimits = KeepLimits()
    notify_file: Path | None = None
    prices_file: Path | None = None
    topology_file: Path | None = None

    def scheduler_arguments(self) -> list[str]:
        """For `python -m stager.service --state-dir D ...`: what was decided here holds there."""
        words = ["--capacity", str(self.capacity_bytes), "--cores", str(self.cores), "--idle-exit-s", f"{self.idle_exit_s:g}"]
        words += ["--scrub-bytes-per-s", str(self.scrub_bytes_per_s), "--scrub-every-s", f"{self.scrub_every_s:.0f}"]
        words += ["--keep-failed-bytes", str(self.keep_failed_bytes)]
        words += [word for place in self.nodes for word in ("--node", str(place))]
        words += ["--pool", self.pool] if self.pool else []
        words += ["--gone-after-s", f"{self.gone_after_s:g}"] if self.gone_after_s is not None else []
        return [*words, "--memory", str(self.memory_bytes)] if self.memory_bytes is not None else words


LISTEN = "127.0.0.1:7433"


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Of what `stager serve` answers over TCP. `allow_hosts`: names besides its own that a Host header may say."""

    host: str = "127.0.0.1"
    port: int = 7433
    allow_hosts: tuple[str, ...] = ()
    metrics_open: bool = False
    body_bytes_max: int = 8 << 20
    submit_bytes_max: int = 256 << 20
    rate_per_s: float = 50.0
    rate_burst: float = 200.0
    waits_max: int = 32


def server_token(token_file: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """From that file, else from STAGER_TOKEN. Raises InvalidInput that never shows it."""
    env = os.environ if environ is None else environ
    if token_file is not None:
        words = token_file.read_text(errors="replace").split()
        if len(words) != 1:
            raise InvalidInput(
                f"{token_file} should hold a token and nothing else; `stager token create` prints one", subject=str(token_file)
            )
        return words[0]
    if not env.get("STAGER_TOKEN"):
        text = "a service asks for a token, and neither --token-file nor STAGER_TOKEN names one"
        raise InvalidInput(f"{text}; its administrator makes one with `stager token create`", subject="STAGER_TOKEN")
    return env["STAGER_TOKEN"]


def rest_settings(
    listen: str = LISTEN, *, trust_network: bool = False, allow_hosts: tuple[str, ...] = (), metrics_open: bool = False
) -> RestSettings:
    """Raises InvalidInput for what is no HOST:PORT, Refused for an address that others can reach."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(f"{listen!r} is no address to listen on; write HOST:PORT, as in {LISTEN}", subject="listen")
    if not trust_network and not is_loopback(host):
        text = f"{host} can be reached from other machines, and the service speaks no TLS: tokens would be read on the way"
        raise Refused(f"{text}; put a proxy with TLS in front of {LISTEN}, or say --trust-network", code="not_loopback", subject=host)
    return RestSettings(host, int(port), allow_hosts, metrics_open)


def storage_settings(
    capacity_bytes: int, size_bytes: int | None = None, listen: str = STORAGE_LISTEN, url: str = "", *, trust_network: bool = False
) -> StorageSettings | None:
    """None: size 0. Raises InvalidInput for what is no IP:PORT or no URL, Refused for an address that others can reach."""
    if size_bytes == 0:
        return None
    host, _, port = listen.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    if address is None or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(f"{listen!r} is no address to listen on; write IP:PORT, as in {STORAGE_LISTEN}", subject="storage-listen")
    if not trust_network and not address.is_loopback:
        text = f"{host} can be reached from other machines, and what is stored would be read on the way, since it is not encrypted"
        text += f"; put a proxy with TLS in front of {STORAGE_LISTEN} and name it with --storage-url, or say --trust-network"
        raise Refused(text, code="not_loopback", subject=host)
    if url and not re.fullmatch(r"https?://[^/?#@\s]+", url.rstrip("/")):
        text = f"{url!r} is no URL that clients can use; write http(s)://HOST[:PORT], without a path"
        raise InvalidInput(text, subject="storage-url")
    return StorageSettings(size_bytes or int(capacity_bytes * STORAGE_SHARE), listen, url.rstrip("/"), trust_network)


def cluster_listen_of(address: str) -> tuple[str, int] | None:
    """Raises InvalidInput for what is no IP:PORT that hosts can be told. Empty: None."""
    if not address:
        return None
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        good = port.isdecimal() and int(port) <= 65_535 and not ip_address(host).is_unspecified
    except ValueError:
        good = False
    if not good:
        text = f"{address!r} is no address that other hosts can be told; write IP:PORT, as in 10.0.0.5:7435"
        raise InvalidInput(text, subject="cluster-listen")
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings(
    *,
    state_dir: Path | None = None,
    capacity_bytes: int | None = None,
    cores: int | None = None,
    memory_bytes: int | None = None,
    idle_exit_s: float | None = None,
    scrub_bytes_per_s: int | None = None,
    scrub_every_s: float | None = None,
    keep_failed_bytes: int | None = None,
    nodes: Sequence[str] | None = None,
    pool: str | None = None,
    gone_after_s: float | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """A value that is given wins. Raises InvalidInput that names the variable or the key."""
    env = os.environ if environ is None else environ
    config = read_config(env)
    place = chosen_state_dir(state_dir, env, config)
    if cores is None:
        cores = number("cores", env.get("STAGER_CORES") or config.get("cores")) or len(os.sched_getaffinity(0))
    if capacity_bytes is None:
        capacity_bytes = size("capacity", env.get("STAGER_CAPACITY") or config.get("capacity"))
    given = capacity_bytes is not None
    if capacity_bytes is None:
        capacity_bytes = default_capacity(place)
    elif capacity_bytes == 0:
        raise InvalidInput("a capacity of 0 leaves the I/O node no room; write a size, as in '20 GB'", subject="capacity")
    memory_bytes = memory_bytes if memory_bytes is not None else size("memory", env.get("STAGER_MEMORY") or config.get("memory"))
    if idle_exit_s is None:
        idle_exit_s = duration("idle_exit", env.get("STAGER_IDLE_EXIT") or config.get("idle_exit"))
    idle_exit_s = IDLE_EXIT_S if idle_exit_s is None else idle_exit_s
    if scrub_bytes_per_s is None:
        scrub_bytes_per_s = size("scrub_rate", env.get("STAGER_SCRUB_RATE") or config.get("scrub_rate"))
    if scrub_every_s is None:
        scrub_every_s = duration("scrub_every", env.get("STAGER_SCRUB_EVERY") or config.get("scrub_every"))
    gone_after_s = gone_after_s if gone_after_s is not None else gone_after(env.get("STAGER_GONE_AFTER") or config.get("gone_after"))
    if keep_failed_bytes is None:
        keep_failed_bytes = size("keep_failed", env.get("STAGER_KEEP_FAILED") or config.get("keep_failed"))
    return Settings(
        place,
        capacity_bytes,
        cores,
        memory_bytes,
        idle_exit_s,
        dict(env),
        current_umask(),
        capacity_given=given,
        scrub_bytes_per_s=SCRUB_BYTES_PER_S if scrub_bytes_per_s is None else scrub_bytes_per_s,
        scrub_every_s=SCRUB_EVERY_S if scrub_every_s is None else scrub_every_s,
        keep_failed_bytes=KEEP_FAILED_BYTES if keep_failed_bytes is None else keep_failed_bytes,
        nodes=nodes_of(nodes, env, config),
        copies=number("copies", env.get("STAGER_COPIES") or config.get("copies")) or 1,
        gone_after_s=gone_after_s,
        notify_file=file_of("notify", env, config),
        prices_file=file_of("prices", env, config),
        topology_file=file_of("topology", env, config),
        pool=pool_of(str(pool or env.get("STAGER_POOL") or config.get("pool") or "")),
        **kept_settings(env, config),
    )


def kept_settings(env: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, Any]:
    """That results are reused; and how much of them is kept and for how long, where somebody says. And of what is made for jobs."""
    reuse = switch("reuse", env.get("STAGER_REUSE") or config.get("reuse", True))
    size_bytes = size("keep_results", env.get("STAGER_KEEP_RESULTS") or config.get("keep_results"))
    long_s = duration("keep_results_for", env.get("STAGER_KEEP_RESULTS_FOR") or config.get("keep_results_for"))
    found = {"keep_results_bytes": size_bytes, "keep_results_s": long_s}
    keep = keep_limits_of(env, config)
    return {"reuse": reuse, "keep": keep, **{name: value for name, value in found.items() if value is not None}}


def keep_limits_of(env: Mapping[str, str], config: Mapping[str, Any] = MappingProxyType({})) -> KeepLimits:
    """Of a host, which has no configuration file, by its environment alone."""
    images_bytes = size("keep_images", env.get("STAGER_KEEP_IMAGES") or config.get("keep_images"))
    environments_bytes = size("keep_environments", env.get("STAGER_KEEP_ENVIRONMENTS") or config.get("keep_environments"))
    found = {"images_bytes": images_bytes, "environments_bytes": environments_bytes}
    return KeepLimits(**{name: value for name, value in found.items() if value is not None})


def switch(name: str, value: object) -> bool:
    """Raises InvalidInput for what is neither on nor off."""
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("on", "off"):
        raise InvalidInput(f"{name} is {value!r}; write on or off", subject=name)
    return str(value).lower() == "on"


def nodes_of(given: Sequence[str] | None, env: Mapping[str, str], config: Mapping[str, Any]) -> tuple[NodePlace, ...]:
    """ID=ADDRESS of each, perhaps with @TOKEN_FILE, from the command line or STAGER_NODES, else the table of the configuration file."""
    table = config.get("nodes", {})
    if not isinstance(table, dict):
        example = "node1 = '127.0.0.1:7411@/srv/node1/token'"
        raise InvalidInput(f"nodes is no table; write [nodes] and below it a line for each, as in {example}", subject="nodes")
    words = given or env.get("STAGER_NODES", "").split()
    pairs = [word.partition("=")[::2] for word in words] if words else [(name, str(text)) for name, text in table.items()]
    named: dict[str, tuple[str, Path | None]] = {}
    for node_id, text in pairs:
        address, at, token_file = text.partition("@")
        if node_id in named:
            raise InvalidInput(f"two I/O nodes are named {node_id!r}; name each differently", subject="nodes")
        named[node_id] = (address, (path_of(token_file, env) or Path()) if at else None)
    return node_places(named)


def environment() -> dict[str, str]:
    """All of it, for programs that are started as if by the user."""
    return dict(os.environ)


def pool_of(address: str) -> str:
    """Raises InvalidInput for no address, Refused for plain text over a network."""
    if not address:
        return ""
    found = re.fullmatch(r"(tcp|tls)://(.+):([0-9]{1,5})", address)
    if found is None:
        raise InvalidInput(f"{address!r} is no address of a pool; write tcp://HOST:PORT or tls://HOST:PORT", subject="pool")
    if found[1] == "tcp" and not is_loopback(found[2].removeprefix("[").removesuffix("]")):
        text = f"{address} would be spoken to in plain text, and whoever reaches a pool runs programs as its user"
        text += "; start it with a certificate (`stager pool --tls-dir`) and write tls://"
        raise Refused(text, code="not_loopback", subject="pool")
    return address


def state_dir_of(state_dir: Path | None, environ: Mapping[str, str] | None = None) -> Path:
    """Only that: the rest asks the disk, and completion must be quick."""
    env = os.environ if environ is None else environ
    return chosen_state_dir(state_dir, env, {} if state_dir or env.get("STAGER_STATE_DIR") else read_config(env))


def chosen_state_dir(given: Path | None, env: Mapping[str, str], config: Mapping[str, Any]) -> Path:
    chosen = given or path_of(env.get("STAGER_STATE_DIR") or config.get("state_dir"), env) or default_state_dir(env)
    return Path(os.path.abspath(chosen))


def current_umask() -> int:
    """The kernel tells it only by changing it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def default_state_dir(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME", "/")) / ".local" / "state")
    return Path(base) / "stager"


def default_capacity(state_dir: Path) -> int:
    """Four fifths of what is free or held by the store already, rounded down to one digit so that a plan made twice is the same. The
    space for tenants' objects is theirs, and gives the cache no room.
    """
    place = state_dir
    while not place.exists():
        place = place.parent
    store = state_dir / "node"
    held = sum(entry.stat().st_blocks * 512 for entry in store.rglob("*") if entry.is_file() and store / "objects" not in entry.parents)
    room = int((shutil.disk_usage(place).free + held) * FREE_SHARE)
    digit: int = 10 ** (len(str(room)) - 1)
    return room // digit * digit


def read_config(env: Mapping[str, str]) -> Mapping[str, Any]:
    """$XDG_CONFIG_HOME/stager/config.toml, if it is there."""
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME", "/")) / ".config")
    path = Path(base) / "stager" / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except UnicodeDecodeError as problem:
        raise InvalidInput(f"{path} is not UTF-8 (at byte {problem.start}); save it as UTF-8", subject=str(path)) from None
    # Few have such a file.
    import tomllib

    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(f"{path} is not valid TOML: {problem}", subject=str(path)) from problem
    unknown = sorted(set(config) - CONFIG_KEYS)
    if unknown:
        raise InvalidInput(f"{path}: unknown key {unknown[0]!r}; there are {', '.join(sorted(CONFIG_KEYS))}", subject=unknown[0])
    return config


def file_of(name: str, env: Mapping[str, str], config: Mapping[str, Any]) -> Path | None:
    return path_of(env.get(f"STAGER_{name.upper()}") or config.get(name), env)


def path_of(text: Any, env: Mapping[str, str]) -> Path | None:
    if not text:
        return None
    return Path(env.get("HOME", "/") + str(text)[1:]) if str(text).startswith("~/") else Path(str(text))


def number(name: str, value: Any) -> int | None:
    if value in (None, ""):
        return None
    if not str(value).isdecimal() or int(value) < 1:
        raise InvalidInput(f"{name} is {value!r}; write a whole number from 1", subject=name)
    return int(value)


def size(name: str, value: Any) -> int | None:
    return None if value in (None, "") else parsed(name, value, parse_size_bytes)


def duration(name: str, value: Any) -> float | None:
    return None if value in (None, "") else parsed(name, value, parse_duration_s)


def gone_after(value: Any) -> float | None:
    """A restart of a node takes less."""
    after_s = duration("gone_after", value)
    if after_s is not None and after_s < GONE_AFTER_S_MIN:
        text = f"gone_after is {value!r}, and a node that is only started again is away for longer; write {GONE_AFTER_S_MIN:g} s or more"
        raise InvalidInput(text, subject="gone_after")
    return after_s


def parsed(name: str, value: Any, parse: Any) -> Any:
    try:
        return parse(value)
    except ValueError as problem:
        raise InvalidInput(f"{name}: {problem}", subject=name) from problem
