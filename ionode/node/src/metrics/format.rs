//! The exposition as it goes out: OpenMetrics for those who ask for it, Prometheus' older text for the rest.
//!
//! The one rule: both say the same; the older is the newer one, line by line, under the names it had.

pub const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Prometheus asks for several with weights; whoever names OpenMetrics at all can read it.
pub fn wants_open(accept: &str) -> bool {
    accept.split(',').any(|one| one.trim().split(';').next() == Some("application/openmetrics-text"))
}

/// There, a counter's family is called as its sample is, units are comments, and `info` is a gauge.
pub fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let said = help.strip_prefix(name).unwrap_or("").trim_start();
            text.push_str(&format!("# HELP {name}{suffix} {said}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_text_says_the_same() {
        let open = "# HELP a Of a.\n# TYPE a counter\n# UNIT a bytes\na_total 1\n# HELP b Of b.\n# TYPE b info\nb_info{v=\"#\"} 1\n# EOF\n";
        let older =
            "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1\n# HELP b_info Of b.\n# TYPE b_info gauge\nb_info{v=\"#\"} 1\n";
        assert_eq!(classic(open), older);
    }

    #[test]
    fn who_can_read_open_metrics_gets_it() {
        assert!(wants_open(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5,*/*;q=0.1"
        ));
        assert!(!wants_open("text/plain;version=0.0.4") && !wants_open("*/*") && !wants_open(""));
    }
}
