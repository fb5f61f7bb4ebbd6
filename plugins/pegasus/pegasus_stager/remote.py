"""The files of other machines that are served here, and the way to them: the origins that `stager-ionode transfer` must be told.

May know: URLs of Pegasus, where Pegasus keeps keys, `ssh -G`. One rule: keys of hosts and certificates are always checked, and what is set
up in a way that is not understood here is left to pegasus-transfer.
"""

from __future__ import annotations

import os
from urllib.parse import unquote

from pegasus_stager.settings import TransferSettings
from pegasus_stager.urls import Url

WEB, SSH, S3 = ("http", "https"), ("scp", "sftp"), ("s3", "s3s")
READ, WRITTEN = frozenset(WEB + SSH + S3), frozenset(SSH + S3)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OSG_SQUID_LOCATION")
SSH_DEADLINE_S = 20.0


class Unserved(Exception):
    """Not reached from here; says why."""


class Origins:
    """From a URL to an origin and a path in it. Remembers what it has found out."""

    def __init__(self, settings: TransferSettings) -> None:
        self.environ = settings.environ
        self.leaves = settings.leaves
        self.known: dict[tuple[str, str, str], dict[str, object]] = {}

    def of(self, url: Url) -> tuple[dict[str, object], str]:
        """Raises Unserved."""
        if url.protocol in self.leaves:
            raise Unserved(f"STAGER_TRANSFER_LEAVES names {url.protocol}")
        if url.protocol in S3:
            bucket, _, path = url.path.lstrip("/").partition("/")
            key = (url.protocol, url.host, url.site + "/" + bucket)
        else:
            bucket, path, key = "", url.path.lstrip("/"), (url.protocol, url.host, url.site)
        if not path:
            raise Unserved(f"{url} names no file")
        if key not in self.known:
            self.known[key] = self.found(url, bucket)
        return self.known[key], unquote(path) if url.protocol in WEB and "?" not in path else path

    def found(self, url: Url, bucket: str) -> dict[str, object]:
        if url.protocol in WEB:
            return self.web(url)
        return self.ssh(url) if url.protocol in SSH else self.s3(url, bucket)

    def web(self, url: Url) -> dict[str, object]:
        place = self.environ.get("PEGASUS_CREDENTIALS")
        if "@" in url.host or (place and self.speaks_of(place, url)):
            raise Unserved("it needs the headers of PEGASUS_CREDENTIALS, or a password")
        proxies = [name for name in PROXIES if self.environ.get(name)]
        if proxies:
            raise Unserved(f"{proxies[0]} names a proxy")
        ca_file = self.environ.get("SSL_CERT_FILE") or None
        return {"kind": "http", "base_url": f"{url.protocol}://{url.host}", "ca_file": ca_file, "queries": True}

    def speaks_of(self, place: str, url: Url) -> bool:
        """Whether the file has headers for this server. One that cannot be read may."""
        import configparser

        parser = configparser.RawConfigParser()
        try:
            found = parser.read(place)
        except configparser.Error:
            return True
        return not found or parser.has_section(f"{url.protocol}://{url.host}") or parser.has_section(url.host)

    def ssh(self, url: Url) -> dict[str, object]:
        """The settings that OpenSSH itself would use for this host."""
        user, _, place = url.host.rpartition("@")
        host, _, port = place.partition(":")
        said = self.ssh_settings(host, port, user.partition(":")[0])
        for key in ("proxyjump", "proxycommand"):
            if said.get(key, ["none"])[0].lower() not in ("none", ""):
                raise Unserved(f"your ssh configuration reaches {host} through {key}")
        named = self.environ.get("SSH_PRIVATE_KEY_" + url.site) or self.environ.get("SSH_PRIVATE_KEY")
        files = [named] if named else [self.expanded(path) for path in said.get("identityfile", [])]
        agent = said.get("identityagent", ["SSH_AUTH_SOCK"])[0]
        agent = self.environ.get("SSH_AUTH_SOCK", "") if agent == "SSH_AUTH_SOCK" else self.expanded(agent)
        known = [path for key in ("userknownhostsfile", "globalknownhostsfile") for value in said.get(key, []) for path in value.split(" ")]
        alias = said.get("hostkeyalias", ["none"])[0]
        return {
            "kind": "sftp",
            "host": said.get("hostname", [host])[0],
            "port": int(said.get("port", ["22"])[0]),
            "user": said.get("user", [user])[0],
            "base_path": "/",
            "known_hosts": [self.expanded(path) for path in known if path.lower() not in ("none", "")],
            "host_key_alias": None if alias in ("none", "") else alias,
            "identity_files": [path for path in files if os.path.isfile(path)],
            "identities_only": bool(named) or said.get("identitiesonly", ["no"])[0] == "yes",
            "agent_socket": None if agent in ("none", "") else agent,
            "shell_checksum": True,
        }

    def ssh_settings(self, host: str, port: str, user: str) -> dict[str, list[str]]:
        import subprocess

        if not host or host.startswith("-") or user.startswith("-"):
            raise Unserved("it names no host, or one that starts with '-'")
        argv = ["ssh", "-G"]
        argv += ["-F", self.environ["STAGER_SSH_CONFIG"]] if self.environ.get("STAGER_SSH_CONFIG") else []
        argv += ["-p", port] if port else []
        argv += ["-l", user] if user else []
        try:
            done = subprocess.run([*argv, "--", host], capture_output=True, env=dict(self.environ), timeout=SSH_DEADLINE_S, check=True)
        except (OSError, subprocess.SubprocessError) as problem:
            raise Unserved(f"`ssh -G {host}` fails ({problem})") from problem
        said: dict[str, list[str]] = {}
        for line in done.stdout.decode(errors="replace").split("\n"):
            key, _, value = line.partition(" ")
            said.setdefault(key.lower(), []).append(value.strip(" "))
        return said

    def expanded(self, path: str) -> str:
        return self.environ.get("HOME", "") + path[1:] if path == "~" or path.startswith("~/") else path

    def s3(self, url: Url, bucket: str) -> dict[str, object]:
        """s3://IDENTITY@SITE/BUCKET/KEY, both named in the credentials file of pegasus-s3."""
        import configparser

        identity, _, site = url.host.partition("@")
        place = self.environ.get("PEGASUS_CREDENTIALS_" + url.site) or self.environ.get("PEGASUS_CREDENTIALS")
        place = place or self.environ.get("HOME", "") + "/.pegasus/credentials.conf"
        parser = configparser.RawConfigParser()
        try:
            mode = os.stat(place).st_mode
            parser.read(place)
            section = f"{identity.partition(':')[0]}@{site}"
            endpoint, region = parser.get(site, "endpoint"), parser.get(site, "region", fallback="")
            keys = parser.get(section, "access_key"), parser.get(section, "secret_key")
        except (OSError, configparser.Error) as problem:
            # The text of a parse error may quote a line with a key.
            raise Unserved(f"{place} does not say how ({type(problem).__name__})") from None
        if mode & 0o077:
            raise Unserved(f"{place} holds keys and can be read by others: chmod 600 it")
        if "amazonaws.com" in endpoint and not region:
            raise Unserved(f"{place} names no region for {site}")
        return {
            "kind": "s3",
            "bucket": bucket,
            "region": region or "us-east-1",
            "endpoint": endpoint,
            "addressing": "path",
            "access_key_id": keys[0],
            "secret_access_key": keys[1],
            "allow_http": endpoint.startswith("http:"),
        }
