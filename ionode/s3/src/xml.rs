//! What XML can say, and what is said where it cannot.
//!
//! The one rule: a letter that XML does not hold never reaches a document.

fn is_in_xml(letter: char) -> bool {
    // A carriage return is read back as a line feed.
    !matches!(letter, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether XML can say it as it is.
pub fn is_writable(name: &str) -> bool {
    name.chars().all(is_in_xml)
}

/// For messages.
pub fn writable(text: &str) -> String {
    text.chars().map(|letter| if is_in_xml(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}
