//! A figure, and the metric that it is for Prometheus.

/// What a figure does in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the database is open.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Microseconds,
}

/// A number that a database tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Name, as InnoDB's where the thing is the same: `checkpoint_age`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// What it does in time.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// Its value now.
    pub value: u64,
}

impl Figure {
    /// Name as a metric: `weir_` in front, the unit behind where the name doesn't tell it, and
    /// `_total` for counters and nothing else, as Prometheus has it.
    pub fn metric(&self) -> String {
        let unit = match self.unit {
            Unit::Bytes if !self.name.contains("bytes") => "_bytes",
            Unit::Microseconds => "_seconds",
            Unit::Bytes | Unit::Count => "",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        let name = self.name.trim_end_matches("_us").trim_end_matches("_total");
        format!("weir_{name}{unit}{total}")
    }

    /// Value as a metric: times are in seconds.
    pub fn metric_value(&self) -> String {
        match self.unit {
            Unit::Microseconds => {
                format!("{}.{:06}", self.value / 1_000_000, self.value % 1_000_000)
            }
            Unit::Bytes | Unit::Count => self.value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &'static str, kind: Kind, unit: Unit) -> Figure {
        Figure { name, help: "", kind, unit, value: 1_500_001 }
    }

    #[test]
    fn metrics_are_named_as_prometheus_has_it() {
        let metric = |name, kind, unit| figure(name, kind, unit).metric();
        let (counter, gauge) = (Kind::Counter, Kind::Gauge);
        assert_eq!(metric("checkpoint_age", gauge, Unit::Bytes), "weir_checkpoint_age_bytes");
        assert_eq!(metric("data_file_bytes", gauge, Unit::Bytes), "weir_data_file_bytes");
        assert_eq!(metric("pages_total", gauge, Unit::Count), "weir_pages");
        assert_eq!(metric("pages_read", counter, Unit::Count), "weir_pages_read_total");
        assert_eq!(
            metric("log_wait_us", counter, Unit::Microseconds),
            "weir_log_wait_seconds_total"
        );
    }

    #[test]
    fn times_are_seconds() {
        let value = |unit| figure("x_us", Kind::Counter, unit).metric_value();
        assert_eq!(value(Unit::Microseconds), "1.500001");
        assert_eq!(value(Unit::Count), "1500001");
    }
}
