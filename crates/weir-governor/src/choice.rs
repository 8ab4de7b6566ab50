//! Policies by name: which one to run, and by which rules the engine around it plays.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{FixedRate, Governor, InnodbAdaptive, InnodbSettings, Policy, WriteAtDeadline};

/// Pages per second that a policy may be given: at most more than a thousand devices do.
pub const PAGE_RATES: RangeInclusive<f64> = 1.0..=1e9;

/// A policy by name.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyChoice {
    /// Weir's.
    Governor,
    /// Each page at its deadline.
    AtDeadline,
    /// InnoDB's.
    Innodb(InnodbSettings),
    /// A fixed rate.
    Fixed(f64),
}

impl PolicyChoice {
    /// What [`PolicyChoice::from_str`] understands; dashes do for other signs, as in names of
    /// files.
    pub const FORMS: &str = "governor, at-deadline, fixed:PAGES, innodb:IO_CAPACITY/IO_CAPACITY_MAX, \
                             innodb-plain:IO_CAPACITY";

    /// InnoDB with these two settings.
    pub fn innodb(io_capacity: f64, io_capacity_max: f64) -> Self {
        PolicyChoice::Innodb(InnodbSettings {
            io_capacity,
            io_capacity_max,
            ..InnodbSettings::default()
        })
    }

    /// The policy, for a dirty limit in percent of the frames.
    pub fn policy(&self, dirty_limit_percent: f64) -> Box<dyn Policy + Send> {
        match self {
            PolicyChoice::Governor => Box::new(Governor::new()),
            PolicyChoice::AtDeadline => Box::new(WriteAtDeadline::new()),
            PolicyChoice::Fixed(rate) => Box::new(FixedRate::new(*rate)),
            PolicyChoice::Innodb(settings) => Box::new(InnodbAdaptive::new(InnodbSettings {
                max_dirty_pages_pct: dirty_limit_percent,
                ..settings.clone()
            })),
        }
    }

    /// Share of the log's capacity that the policy is given: InnoDB keeps its own reserve, Weir an
    /// eighth for what runs when the log is full.
    pub fn usable_log(&self) -> f64 {
        match self {
            PolicyChoice::Innodb(_) => 1.0,
            _ => 0.875,
        }
    }

    /// Whether a page can only become dirty while fewer are than the limit.
    pub fn has_credits(&self) -> bool {
        matches!(self, PolicyChoice::Governor)
    }
}

fn number(text: &str, whole: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{whole}`: `{text}` is not a number"))?;
    if PAGE_RATES.contains(&number) {
        return Ok(number);
    }
    let (least, most) = (PAGE_RATES.start(), PAGE_RATES.end());
    Err(format!("`{whole}`: use {least} to {most} pages per second"))
}

impl FromStr for PolicyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is no policy; use {}", PolicyChoice::FORMS);
        let plain = text.replace([':', '/'], "-");
        match plain.as_str() {
            "governor" => return Ok(PolicyChoice::Governor),
            "at-deadline" => return Ok(PolicyChoice::AtDeadline),
            _ => {}
        }
        if let Some(rate) = plain.strip_prefix("fixed-") {
            return Ok(PolicyChoice::Fixed(number(rate, text)?));
        }
        if let Some(rate) = plain.strip_prefix("innodb-plain-") {
            let io_capacity = number(rate, text)?;
            return Ok(PolicyChoice::Innodb(InnodbSettings {
                adaptive_flushing: false,
                io_capacity,
                io_capacity_max: io_capacity,
                ..InnodbSettings::default()
            }));
        }
        let rates = plain.strip_prefix("innodb-").and_then(|rates| rates.split_once('-'));
        let (low, high) = rates.ok_or_else(unknown)?;
        let (low, high) = (number(low, text)?, number(high, text)?);
        if low > high {
            return Err(format!("`{text}`: io_capacity is above io_capacity_max"));
        }
        Ok(PolicyChoice::innodb(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_name() {
        assert_eq!("governor".parse(), Ok(PolicyChoice::Governor));
        assert_eq!("fixed:500".parse(), Ok(PolicyChoice::Fixed(500.0)));
        assert_eq!("fixed-500".parse(), Ok(PolicyChoice::Fixed(500.0)));
        for name in ["innodb:200/2000", "innodb-200-2000"] {
            assert_eq!(name.parse(), Ok(PolicyChoice::innodb(200.0, 2000.0)), "{name}");
        }
        let Ok(PolicyChoice::Innodb(plain)) = "innodb-plain:200".parse() else {
            panic!("it is one")
        };
        assert!(!plain.adaptive_flushing && plain.io_capacity_max == 200.0);
        for bad in [
            "",
            "governor:1",
            "fixed",
            "fixed:x",
            "fixed:0",
            "fixed:1e300",
            "innodb:5",
            "innodb:9/3",
            "innodb:0/5",
            "best",
        ] {
            assert!(bad.parse::<PolicyChoice>().is_err(), "{bad}");
        }
    }
}
