"""From an Origin of a workflow to the configuration an I/O node takes: ssh settings resolved, credentials looked up.

May know: the model, `ssh -G`, the AWS files. One rule: it runs where the user is (the environment is passed in); what it returns may hold
secrets and goes over a 0600 socket into memory, never into a file, a log or a plan.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from stager.adapters.ssh_config import agent_socket, expanded, split_paths, ssh_settings
from stager.model.errors import Denied, InvalidInput, Refused
from stager.model.units import parse_size_bytes
from stager.model.workflow import Origin, OriginKind

TRUE = frozenset({"1", "true", "yes", "on"})


def resolve_all(origins: Iterable[Origin], environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Configurations by the origins' names. Raises the first error; `stager check` resolves one by one."""
    return {origin.name: resolve(origin, environ) for origin in origins}


def resolve(origin: Origin, environ: Mapping[str, str]) -> dict[str, Any]:
    """The body of PUT /v1/origins (docs/formats/ionode-api.md). Raises InvalidInput, Refused or Denied with what to change."""
    makers = {
        OriginKind.FILE: file_config,
        OriginKind.SFTP: sftp_config,
        OriginKind.SSHFS: sshfs_config,
        OriginKind.S3: s3_config,
        OriginKind.HTTP: http_config,
    }
    options = dict(origin.options)
    config = makers[origin.kind](origin, urlsplit(origin.url), options, environ)
    if options.get("bandwidth"):
        config["bandwidth_bytes_per_s_max"] = size_option(origin, "bandwidth", options["bandwidth"])
    return config


def needs_secrets(origin: Origin) -> bool:
    """Whether only the submitter's environment can say its configuration."""
    return origin.kind is OriginKind.S3 or (origin.kind is OriginKind.HTTP and bool(origin.credentials))


def size_option(origin: Origin, key: str, text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as problem:
        raise InvalidInput(f"origin {origin.name!r}, {key}: {problem}", subject=origin.name) from problem


def file_config(origin: Origin, url: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    path = unquote(url.path) if url.scheme == "file" else origin.url
    if url.scheme == "file" and url.netloc not in ("", "localhost"):
        text = f"origin {origin.name!r}: {origin.url} names the host {url.netloc!r}; a file origin is on this machine, write file:///dir"
        raise InvalidInput(text, subject=origin.name)
    if not path.startswith("/"):
        raise InvalidInput(f"origin {origin.name!r}: {origin.url} is not absolute; write file:///dir", subject=origin.name)
    return {"kind": "file", "base_path": path.rstrip("/") or "/"}


def sshfs_config(origin: Origin, url: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    return sftp_config(origin, url, options, environ) | {"kind": "sshfs", "mount_point": options.get("mount_point")}


def sftp_config(origin: Origin, url: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings that OpenSSH itself would use for this host, read once with `ssh -G`; the origin's own settings win."""
    if not url.hostname:
        raise InvalidInput(f"origin {origin.name!r}: {origin.url} names no host; write sftp://user@host/dir", subject=origin.name)
    if url.password is not None:
        raise InvalidInput(f"origin {origin.name!r}: take the password out of the URL; use an ssh key or agent", subject=origin.name)
    user = unquote(url.username) if url.username else None
    said = ssh_settings(url.hostname, url.port, user, environ, f"origin {origin.name!r}", origin.name)
    for key in ("proxyjump", "proxycommand"):
        if said.get(key, ["none"])[0].lower() not in ("none", ""):
            text = f"origin {origin.name!r}: your ssh configuration reaches {url.hostname} through {key} {said[key][0]!r}"
            advice = "stager does not do that; give an origin that can be reached directly"
            raise Refused(f"{text}; {advice}", code="unsupported", subject=origin.name)
    identities, only, agent = identities_of(origin, said, environ)
    own = options.get("known_hosts")
    known_hosts = [own] if own else split_paths(said, "userknownhostsfile", "globalknownhostsfile")
    alias = options.get("host_key_alias") or said.get("hostkeyalias", ["none"])[0]
    return {
        "kind": "sftp",
        "host": said.get("hostname", [url.hostname])[0],
        "port": int(said.get("port", ["22"])[0]),
        "user": said.get("user", [url.username or ""])[0],
        "base_path": remote_path(url),
        "known_hosts": [expanded(path, environ) for path in known_hosts],
        "host_key_alias": None if alias in ("none", "") else alias,
        "identity_files": identities,
        "identities_only": only,
        "agent_socket": agent,
        "connections_max": int(options["connections_max"]) if options.get("connections_max") else None,
        "shell_checksum": options.get("shell_checksum", "true").lower() in TRUE,
        "verify_source": options.get("verify_source", "false").lower() in TRUE,
    }


def identities_of(origin: Origin, said: Mapping[str, list[str]], environ: Mapping[str, str]) -> tuple[list[str], bool, str | None]:
    """Key files that are there, whether only they may be used, and the agent's socket."""
    socket = agent_socket(said, environ)
    if origin.credentials.startswith("key:"):
        path = expanded(origin.credentials[4:], environ)
        if not os.path.isfile(path):
            raise Denied(f"origin {origin.name!r}: there is no key file {path} that can be read", code="auth_failed", subject=origin.name)
        return [path], True, socket
    if origin.credentials == "agent":
        if socket is None:
            text = f"origin {origin.name!r} wants the ssh agent, but SSH_AUTH_SOCK is not set; start one and add your key with ssh-add"
            raise Denied(text, code="auth_failed", subject=origin.name)
        return [], False, socket
    if origin.credentials:
        text = f"origin {origin.name!r}: credentials {origin.credentials!r} are not for ssh"
        text += "; write agent, key:PATH, or nothing for your ssh configuration"
        raise InvalidInput(text, subject=origin.name)
    files = [expanded(path, environ) for path in split_paths(said, "identityfile")]
    # Not that of Path, which fails where a directory above may not be entered.
    return [path for path in files if os.path.isfile(path)], said.get("identitiesonly", ["no"])[0] == "yes", socket


def remote_path(url: SplitResult) -> str:
    """`/dir` is absolute; `/~/dir` is below the login directory, as with scp and curl."""
    path = unquote(url.path).rstrip("/")
    if path == "/~" or path.startswith("/~/"):
        return path[3:] or "."
    return path or "/"


def s3_config(origin: Origin, url: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    if not url.netloc or "@" in url.netloc:
        raise InvalidInput(f"origin {origin.name!r}: write {origin.url} as s3://bucket/prefix, without credentials", subject=origin.name)
    keys = s3_credentials(origin, environ)
    endpoint = options.get("endpoint") or keys.get("endpoint") or None
    # Plain http that a workflow asks for needs the workflow's word; that of the user's own environment or profile is the user's word.
    allow_http = options.get("allow_http", "").lower() in TRUE or (not options.get("endpoint") and (endpoint or "").startswith("http:"))
    region = options.get("region") or keys.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    # Virtual hosts need DNS names for buckets, which self-run servers seldom have.
    addressing = options.get("addressing") or ("path" if endpoint else "virtual")
    return {
        "kind": "s3",
        "bucket": url.netloc,
        "prefix": unquote(url.path).strip("/"),
        "region": region,
        "endpoint": endpoint,
        "addressing": addressing,
        "access_key_id": keys["access_key_id"],
        "secret_access_key": keys["secret_access_key"],
        "session_token": keys.get("session_token") or None,
        "allow_http": allow_http,
    }


def s3_credentials(origin: Origin, environ: Mapping[str, str]) -> dict[str, str]:
    """`env:PREFIX`, `profile:NAME`, `anonymous`, or AWS's own default: the AWS_ variables, else the profile AWS_PROFILE."""
    reference = origin.credentials
    if reference == "anonymous":
        return {"access_key_id": "", "secret_access_key": ""}
    if reference.startswith("env:"):
        return env_credentials(origin, reference[4:], environ)
    if reference.startswith("profile:"):
        return profile_credentials(origin, reference[8:], environ)
    if reference:
        text = f"origin {origin.name!r}: credentials {reference!r} are not for s3; write env:PREFIX, profile:NAME, anonymous, or nothing"
        raise InvalidInput(text, subject=origin.name)
    if environ.get("AWS_ACCESS_KEY_ID"):
        return env_credentials(origin, "AWS", environ)
    return profile_credentials(origin, environ.get("AWS_PROFILE", "default"), environ)


def env_credentials(origin: Origin, prefix: str, environ: Mapping[str, str]) -> dict[str, str]:
    names = {"access_key_id": f"{prefix}_ACCESS_KEY_ID", "secret_access_key": f"{prefix}_SECRET_ACCESS_KEY"}
    missing = [name for name in names.values() if not environ.get(name)]
    if missing:
        text = f"origin {origin.name!r}: {' and '.join(missing)} not set in the environment; export the key of an account that may use it"
        raise Denied(text, code="auth_failed", subject=origin.name)
    more = {"session_token": f"{prefix}_SESSION_TOKEN", "region": f"{prefix}_REGION", "endpoint": f"{prefix}_ENDPOINT_URL"}
    return {key: environ.get(name, "") for key, name in (names | more).items()}


def profile_credentials(origin: Origin, profile: str, environ: Mapping[str, str]) -> dict[str, str]:
    """From ~/.aws/credentials, then ~/.aws/config (where sections are called `profile NAME`)."""
    home = Path(environ.get("HOME", "/"))
    files = (
        (environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / ".aws/credentials"), profile),
        (environ.get("AWS_CONFIG_FILE") or str(home / ".aws/config"), profile if profile == "default" else f"profile {profile}"),
    )
    found: dict[str, str] = {}
    for path, section in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(expanded(path, environ))
        except (configparser.Error, UnicodeDecodeError) as problem:
            # The message of a parse error quotes the line, which may be a key.
            text = f"origin {origin.name!r}: {path} is not a valid AWS file ({type(problem).__name__}); mend it"
            raise InvalidInput(text, subject=origin.name) from None
        if parser.has_section(section):
            found = {**dict(parser.items(section)), **found}
    if not found.get("aws_access_key_id") or not found.get("aws_secret_access_key"):
        text = f"origin {origin.name!r}: no access key in the AWS profile {profile!r} ({files[0][0]})"
        advice = "run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name other credentials in the workflow"
        raise Denied(f"{text}; {advice}", code="auth_failed", subject=origin.name)
    names = ("access_key_id", "secret_access_key", "session_token")
    keys = {name: found.get(f"aws_{name}", "") for name in names}
    return keys | {"region": found.get("region", ""), "endpoint": found.get("endpoint_url", "")}


def http_config(origin: Origin, url: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    if not url.hostname or "@" in url.netloc or url.query or url.fragment:
        text = f"origin {origin.name!r}: write its URL as https://host/dir, without credentials, query or fragment"
        raise InvalidInput(text, subject=origin.name)
    keys = http_credentials(origin, environ)
    allow_http = options.get("allow_http", "").lower() in TRUE
    if any(keys.values()) and url.scheme == "http" and not allow_http:
        text = f"origin {origin.name!r}: its credentials would go over http, where anyone on the way can read them"
        raise InvalidInput(f"{text}; write https, or add allow_http: true", subject=origin.name)
    ca_file = expanded(options["ca_file"], environ) if options.get("ca_file") else None
    if ca_file is not None and not ca_file.startswith("/"):
        text = f"origin {origin.name!r}, ca_file: {ca_file!r} is not absolute; write the full path, or one that starts with ~/"
        raise InvalidInput(text, subject=origin.name)
    return {
        "kind": "http",
        "base_url": origin.url,
        **keys,
        "ca_file": ca_file,
        "allow_http": allow_http,
        "queries": options.get("queries", "").lower() in TRUE,
        **({"public_only": True} if options.get("public_only") == "true" else {}),
        "connections_max": int(options["connections_max"]) if options.get("connections_max") else None,
    }


def http_credentials(origin: Origin, environ: Mapping[str, str]) -> dict[str, str | None]:
    """`env:PREFIX` for a token, or a user and a password; nobody in particular without."""
    none: dict[str, str | None] = {"bearer_token": None, "user": None, "password": None}
    if not origin.credentials:
        return none
    if not origin.credentials.startswith("env:"):
        text = f"origin {origin.name!r}: credentials {origin.credentials!r} are not for http; write env:PREFIX, or nothing"
        raise InvalidInput(text, subject=origin.name)
    prefix = origin.credentials[4:]
    token, user, password = (environ.get(f"{prefix}_{name}") for name in ("TOKEN", "USER", "PASSWORD"))
    if token and not (user or password):
        return none | {"bearer_token": token}
    if user and password and not token:
        return none | {"user": user, "password": password}
    text = f"origin {origin.name!r}: the environment needs {prefix}_TOKEN, or {prefix}_USER and {prefix}_PASSWORD, and not both"
    raise Denied(f"{text}; export those of an account that may read it", code="auth_failed", subject=origin.name)
