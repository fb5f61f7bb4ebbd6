//! The URIs among a certificate's names (RFC 5280, 4.2.1.6). Knows DER just as far as that, and nothing of trust.
//!
//! The one rule: what is read here was signed by a trusted authority before; what cannot be read has no names.

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[3] EXPLICIT` of a certificate: its extensions.
const EXTENSIONS: u8 = 0xa3;
/// `[6] IMPLICIT IA5String` of a name.
const URI: u8 = 0x86;
/// 2.5.29.17, subjectAltName.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// One element: its tag and its content.
type Element<'a> = (u8, &'a [u8]);

fn next<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let (&tag, tail) = rest.split_first()?;
    let (&first, tail) = tail.split_first()?;
    let (length, tail) = match first {
        0..=0x7f => (usize::from(first), tail),
        0x81..=0x83 => {
            let (bytes, tail) = tail.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), tail)
        }
        _ => return None,
    };
    let (content, tail) = tail.split_at_checked(length)?;
    *rest = tail;
    Some((tag, content))
}

fn elements(mut content: &[u8]) -> impl Iterator<Item = Element<'_>> {
    std::iter::from_fn(move || next(&mut content))
}

fn inside(element: Option<Element<'_>>, tag: u8) -> Option<&[u8]> {
    element.filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// In the order of the certificate.
pub fn uris(certificate: &[u8]) -> Vec<String> {
    names(certificate).map_or_else(Vec::new, |names| {
        let uris = elements(names).filter(|(tag, _)| *tag == URI);
        uris.filter_map(|(_, text)| String::from_utf8(text.to_vec()).ok()).collect()
    })
}

fn names(certificate: &[u8]) -> Option<&[u8]> {
    let whole = inside(elements(certificate).next(), SEQUENCE)?;
    let signed = inside(elements(whole).next(), SEQUENCE)?;
    let extensions = elements(signed).find(|(tag, _)| *tag == EXTENSIONS)?.1;
    let extensions = inside(elements(extensions).next(), SEQUENCE)?;
    let names = elements(extensions).filter_map(|extension| inside(Some(extension), SEQUENCE)).find_map(|extension| {
        let id = inside(elements(extension).next(), OBJECT_IDENTIFIER)?;
        (id == SUBJECT_ALT_NAME).then(|| elements(extension).find(|(tag, _)| *tag == OCTET_STRING)).flatten()
    })?;
    inside(elements(names.1).next(), SEQUENCE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = match content.len() {
            short @ 0..=0x7f => vec![short as u8],
            long => vec![0x82, (long >> 8) as u8, long as u8],
        };
        [&[tag][..], &length, content].concat()
    }

    fn certificate(names: &[(u8, &str)]) -> Vec<u8> {
        let names: Vec<u8> = names.iter().flat_map(|(tag, text)| element(*tag, text.as_bytes())).collect();
        let other = element(SEQUENCE, &[element(OBJECT_IDENTIFIER, &[0x55, 0x1d, 0x13]), element(OCTET_STRING, b"x")].concat());
        let critical = element(0x01, &[0xff]);
        let value = element(OCTET_STRING, &element(SEQUENCE, &names));
        let own = element(SEQUENCE, &[element(OBJECT_IDENTIFIER, SUBJECT_ALT_NAME), critical, value].concat());
        let extensions = element(EXTENSIONS, &element(SEQUENCE, &[other, own].concat()));
        let signed = element(SEQUENCE, &[element(0x02, &[7]), extensions].concat());
        element(SEQUENCE, &[signed, element(SEQUENCE, b"algorithm"), element(0x03, b"signature")].concat())
    }

    #[test]
    fn uris_are_found_among_other_names_and_extensions() {
        let long = format!("stager://c/node/{}", "n".repeat(200));
        let made = certificate(&[(0x82, "host.example"), (URI, "stager://c/node/a"), (0x87, "1234"), (URI, &long)]);
        assert_eq!(uris(&made), ["stager://c/node/a".to_string(), long]);
        assert_eq!(uris(&certificate(&[(0x82, "stager://c/scheduler")])), [""; 0]);
        assert_eq!(uris(b""), [""; 0]);
    }

    proptest! {
        #[test]
        fn whatever_is_cut_or_changed_is_read_without_a_panic(cut in 0usize..200, at in 0usize..200, byte: u8) {
            let mut made = certificate(&[(URI, "stager://c/node/a")]);
            made.truncate(cut.max(1).min(made.len()));
            let at = at % made.len();
            made[at] = byte;
            uris(&made);
        }
    }
}
