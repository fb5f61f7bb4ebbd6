//! Which addresses an http origin may go to. Knows IP addresses.
//!
//! The one rule: an address that carries another one inside is judged by that one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

use super::client::Barred;
use crate::config::HttpConfig;

/// Metadata services of clouds are link-local, so nobody goes there; a service that reads what strangers name stays off all that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressFilter {
    LinkLocal,
    Public,
}

impl EgressFilter {
    pub fn of(config: &HttpConfig) -> Self {
        if config.public_only {
            Self::Public
        } else {
            Self::LinkLocal
        }
    }

    pub fn bars(self, address: IpAddr) -> Option<Barred> {
        match self {
            Self::LinkLocal => is_link_local(address).then_some(Barred::LinkLocal),
            Self::Public => (!is_public(address)).then_some(Barred::NotPublic),
        }
    }

    /// Of a host that is written as an address, in whatever form; names are judged when they are resolved.
    pub fn bars_host(self, url: &Url) -> Option<Barred> {
        let host = url.host_str().unwrap_or("");
        host.trim_matches(['[', ']']).parse().ok().and_then(|address| self.bars(address))
    }
}

/// Where clouds answer to whoever runs on a machine, besides link-local addresses: of Azure, Alibaba and Oracle; of AWS and Google by IPv6.
const METADATA_V4: [Ipv4Addr; 3] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 2] = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Link-local, or as good as that.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_link_local_v4(address),
        IpAddr::V6(address) => {
            inside(address).map_or_else(|| address.is_unicast_link_local() || METADATA_V6.contains(&address), is_link_local_v4)
        }
    }
}

fn is_link_local_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => inside(address).map_or_else(|| is_public_v6(address), is_public_v4),
    }
}

/// By the IANA registry of special addresses.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || is_link_local_v4(address)
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

/// Global unicast, without what is set aside in it: protocol assignments (Teredo among them) and documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let set_aside = (first == 0x2001 && (second < 0x200 || second == 0xdb8)) || first == 0x3fff;
    first & 0xe000 == 0x2000 && !set_aside
}

/// The IPv4 address that an IPv6 one stands for: mapped, compatible, behind NAT64, or 6to4.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(v4(g, h)),
        (0x2002, high, low, ..) => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_public_internet_is_told_apart_also_inside_other_addresses() {
        let public = |text: &str| is_public(text.parse().unwrap());
        for there in
            ["1.1.1.1", "100.63.0.1", "172.32.0.1", "198.20.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "2002:101:101::", "64:ff9b::101:101"]
        {
            assert!(public(there), "{there}");
        }
        assert!(!public("168.63.129.16") && !public("::ffff:168.63.129.16") && !public("fd20:ce::254"));
        let v4 = ["0.0.0.0", "0.1.2.3", "10.0.0.1", "100.100.100.200", "127.1.2.3", "169.254.169.254", "172.16.0.1", "192.0.0.192"];
        let more = ["192.168.1.1", "198.18.0.1", "203.0.113.5", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"];
        let v6 = ["::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "2001::1", "3fff::1", "64:ff9b:1::1"];
        let inside = ["::ffff:127.0.0.1", "::127.0.0.1", "::ffff:169.254.169.254", "2002:7f00:1::", "64:ff9b::a9fe:a9fe"];
        for here in v4.iter().chain(&more).chain(&v6).chain(&inside) {
            assert!(!public(here), "{here}");
        }
    }

    #[test]
    fn nobody_goes_where_a_cloud_answers_to_its_machines() {
        let near = |text: &str| is_link_local(text.parse().unwrap());
        let metadata = ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fe80::1"];
        let inside = ["::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "64:ff9b::a83f:8110"];
        for here in metadata.iter().chain(&inside) {
            assert!(near(here), "{here}");
        }
        for elsewhere in ["127.0.0.1", "10.0.0.1", "168.63.129.17", "100.100.100.201", "fd00:ec2::255", "2606:4700::1111", "::1"] {
            assert!(!near(elsewhere), "{elsewhere}");
        }
    }
}
