//! Prometheus' text format, version 0.0.4: what of it figures need.
//!
//! ```text
//! # HELP weir_checkpoint_age_bytes Bytes of redo between the checkpoint and the end of the log.
//! # TYPE weir_checkpoint_age_bytes gauge
//! weir_checkpoint_age_bytes 4096
//! ```

use std::collections::BTreeMap;

use crate::figure::{Figure, Kind};

/// What the text is, in HTTP's words.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The figures as text.
pub fn exposition(figures: &[Figure]) -> String {
    let mut text = String::with_capacity(figures.len() * 160);
    for figure in figures {
        let metric = figure.metric();
        let kind = match figure.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // The format escapes these two in help texts.
        let help = figure.help.replace('\\', "\\\\").replace('\n', "\\n");
        let value = figure.metric_value();
        text += &format!("# HELP {metric} {help}\n# TYPE {metric} {kind}\n{metric} {value}\n");
    }
    text
}

/// Reads metrics without labels; those with labels are left out. `None` when it is another format.
pub(crate) fn parse(text: &str) -> Option<BTreeMap<String, f64>> {
    let lines = text.lines().map(str::trim);
    let samples = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    samples
        .filter(|line| !line.contains('{'))
        .map(|line| {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next()?, words.next()?.parse().ok()?);
            Some((name.to_string(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Unit;

    #[test]
    fn what_is_written_is_read() {
        let figures = [
            Figure {
                name: "checkpoint_age",
                help: "Redo\nin \\ bytes.",
                kind: Kind::Gauge,
                unit: Unit::Bytes,
                value: 4096,
            },
            Figure {
                name: "log_wait_us",
                help: "Time.",
                kind: Kind::Counter,
                unit: Unit::Microseconds,
                value: 2_500_000,
            },
        ];
        let text = exposition(&figures);
        assert_eq!(
            text,
            "# HELP weir_checkpoint_age_bytes Redo\\nin \\\\ bytes.\n\
             # TYPE weir_checkpoint_age_bytes gauge\n\
             weir_checkpoint_age_bytes 4096\n\
             # HELP weir_log_wait_seconds_total Time.\n\
             # TYPE weir_log_wait_seconds_total counter\n\
             weir_log_wait_seconds_total 2.500000\n"
        );
        let read = parse(&text).unwrap();
        assert_eq!(read["weir_checkpoint_age_bytes"], 4096.0);
        assert_eq!(read["weir_log_wait_seconds_total"], 2.5);
    }

    #[test]
    fn other_texts() {
        assert_eq!(parse("a{b=\"c\"} 1\nd 2 1700000000\n").unwrap().len(), 1);
        assert!(parse("<html>\n").is_none());
        assert!(parse("name value\n").is_none());
    }
}
