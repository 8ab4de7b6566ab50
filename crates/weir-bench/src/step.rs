//! The steps of a run and how they are written.
//!
//! ```text
//! steps = step { "," step }
//! step  = kind { ":" parameter }
//! kind  = l.i0 | l.x | l.i1 | l.i2 | load | update | scan | qr[RATE] | qp[RATE]
//! ```
//!
//! | kind   | what it does                                             | parameters                          |
//! |--------|----------------------------------------------------------|-------------------------------------|
//! | `l.i0` | load with the primary key only                           | `rows` `commit`                     |
//! | `l.x`  | create the three secondary indexes                       |                                     |
//! | `l.i1` | inserts with all indexes, 50 rows per commit             | `rows` `seconds` `commit` `delete` `rate` |
//! | `l.i2` | the same, 5 rows per commit                              | `rows` `seconds` `commit` `delete` `rate` |
//! | `load` | load with all indexes from the start (the 2017 form)     | `rows` `commit`                     |
//! | `update` | changes of an indexed column of random rows, one per commit | `rows` `seconds` `rate`             |
//! | `scan` | full scans: primary, each secondary, primary             |                                     |
//! | `qr`   | short covering range scans beside rate-limited inserts   | `rate` `seconds` `commit` `delete`  |
//! | `qp`   | primary key lookups beside rate-limited inserts          | `rate` `seconds` `commit` `delete`  |
//!
//! `qr100` is short for `qr:rate=100`. Rows are those of all clients together; a rate is that of
//! one client, of the inserts beside the queries or of the step itself: as fast as it goes where
//! none is given. A step's own may be a share, as in `update:rate=75%`: of what the last step of
//! its kind reached as fast as it went. `delete` deletes the oldest row for each row inserted;
//! `delete=no` turns that off again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::quantity::{format_count, parse_count};

/// The greatest rate that can be asked for.
pub const RATE_MAX: u64 = 1_000_000;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// `l.i0`
    Load,
    /// `l.x`
    CreateIndexes,
    /// `l.i1`
    Insert1,
    /// `l.i2`
    Insert2,
    /// `load`
    LoadIndexed,
    /// `update`
    Update,
    /// `scan`
    Scan,
    /// `qr`
    RangeQueries,
    /// `qp`
    PointQueries,
}

impl StepKind {
    const ALL: [StepKind; 9] = [
        StepKind::Load,
        StepKind::CreateIndexes,
        StepKind::Insert1,
        StepKind::Insert2,
        StepKind::LoadIndexed,
        StepKind::Update,
        StepKind::Scan,
        StepKind::RangeQueries,
        StepKind::PointQueries,
    ];

    fn name(self) -> &'static str {
        match self {
            StepKind::Load => "l.i0",
            StepKind::CreateIndexes => "l.x",
            StepKind::Insert1 => "l.i1",
            StepKind::Insert2 => "l.i2",
            StepKind::LoadIndexed => "load",
            StepKind::Update => "update",
            StepKind::Scan => "scan",
            StepKind::RangeQueries => "qr",
            StepKind::PointQueries => "qp",
        }
    }

    /// Whether it is the first step on empty tables.
    pub fn creates_tables(self) -> bool {
        matches!(self, StepKind::Load | StepKind::LoadIndexed)
    }

    /// Whether it reads beside rate-limited inserts.
    pub fn is_query(self) -> bool {
        matches!(self, StepKind::RangeQueries | StepKind::PointQueries)
    }

    /// Whether it needs the secondary indexes.
    pub fn needs_indexes(self) -> bool {
        use StepKind::{Insert1, Insert2, Scan, Update};
        self.is_query() || matches!(self, Insert1 | Insert2 | Update | Scan)
    }

    fn parameters(self) -> &'static [&'static str] {
        match self {
            StepKind::Load | StepKind::LoadIndexed => &["rows", "commit"],
            StepKind::Insert1 | StepKind::Insert2 => {
                &["rows", "seconds", "commit", "delete", "rate"]
            }
            StepKind::Update => &["rows", "seconds", "rate"],
            StepKind::CreateIndexes | StepKind::Scan => &[],
            StepKind::RangeQueries | StepKind::PointQueries => {
                &["rate", "seconds", "commit", "delete"]
            }
        }
    }
}

/// One step with the parameters that were given; the others take the run's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// Rows to insert, of all clients.
    pub rows: Option<u64>,
    /// Time after which it ends.
    pub seconds: Option<u64>,
    /// Rows per commit.
    pub commit: Option<u32>,
    /// Whether each insert deletes the oldest row.
    pub delete: Option<bool>,
    /// Rows per second of one client: of the inserts beside queries, or of the step.
    pub rate: Option<u64>,
    /// The same as percent of what the last step of this kind reached as fast as it went.
    pub rate_percent: Option<u8>,
}

impl Step {
    /// Name in reports: the kind and the rate.
    pub fn name(&self) -> String {
        match (self.rate, self.rate_percent) {
            (Some(rate), _) if self.kind.is_query() => format!("{}{rate}", self.kind.name()),
            (Some(rate), _) => format!("{}@{}", self.kind.name(), format_count(rate)),
            (None, Some(percent)) => format!("{}@{percent}%", self.kind.name()),
            (None, None) => self.kind.name().to_string(),
        }
    }

    /// Whether it goes as fast as it can.
    pub fn is_unlimited(&self) -> bool {
        self.rate.is_none() && self.rate_percent.is_none()
    }

    fn new(kind: StepKind) -> Self {
        let rate = kind.is_query().then_some(1000);
        let (rows, seconds, commit) = (None, None, None);
        Step { kind, rows, seconds, commit, delete: None, rate, rate_percent: None }
    }

    fn set(&mut self, parameter: &str) -> Result<(), String> {
        let (name, value) = match parameter.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (parameter, None),
        };
        let kind = self.kind.name();
        if !self.kind.parameters().contains(&name) {
            return Err(match self.kind.parameters() {
                [] => format!("`{kind}` takes no parameters"),
                known => format!("`{kind}` has no `{name}`; it takes {}", known.join(", ")),
            });
        }
        if name == "delete" {
            self.delete = Some(match value {
                None | Some("yes") => true,
                Some("no") => false,
                Some(other) => return Err(format!("`delete={other}`: use yes or no")),
            });
            return Ok(());
        }
        let value = value.ok_or(format!("`{name}` needs a value, as in `{kind}:{name}=10`"))?;
        if let ("rate", Some(percent)) = (name, value.strip_suffix('%')) {
            self.rate_percent = Some(self.parse_percent(percent)?);
            self.rate = None;
            return Ok(());
        }
        let count = match (name, parse_count(value)?) {
            ("rate", count) => count,
            (_, 0) => return Err(format!("`{name}` must not be zero")),
            (_, count) => count,
        };
        match name {
            "rows" => self.rows = Some(count),
            "seconds" => self.seconds = Some(in_range(name, count, 86_400)?),
            "commit" => self.commit = Some(in_range(name, count, 100_000)? as u32),
            _ if count == 0 && !self.kind.is_query() => {
                return Err("`rate` must not be zero".into());
            }
            _ => {
                self.rate = Some(in_range(name, count, RATE_MAX)?);
                self.rate_percent = None;
            }
        }
        Ok(())
    }

    fn parse_percent(&self, text: &str) -> Result<u8, String> {
        if self.kind.is_query() {
            return Err("inserts beside queries have a rate in rows per second".into());
        }
        match parse_count(text)? {
            percent @ 1..=100 => Ok(percent as u8),
            percent => Err(format!("`rate={percent}%`: use 1 to 100")),
        }
    }
}

fn in_range(name: &str, value: u64, max: u64) -> Result<u64, String> {
    if value > max {
        return Err(format!("`{name}={value}` is more than {max}"));
    }
    Ok(value)
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let head = parts.next().unwrap_or_default();
        let mut step = parse_head(head)?;
        let mut named = Vec::new();
        for parameter in parts {
            step.set(parameter)?;
            let name = parameter.split('=').next().unwrap_or_default();
            if named.contains(&name) {
                return Err(format!("`{name}` is given twice"));
            }
            named.push(name);
        }
        Ok(step)
    }
}

fn parse_head(head: &str) -> Result<Step, String> {
    let kinds = StepKind::ALL;
    if let Some(kind) = kinds.into_iter().find(|kind| kind.name() == head) {
        return Ok(Step::new(kind));
    }
    let query = kinds.into_iter().filter(|kind| kind.is_query());
    for kind in query {
        let Some(rate) = head.strip_prefix(kind.name()) else { continue };
        let mut step = Step::new(kind);
        step.rate = Some(in_range("rate", parse_count(rate)?, RATE_MAX)?);
        return Ok(step);
    }
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    Err(format!("`{head}` is no step; use {}", names.join(", ")))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match (self.rate, self.rate_percent) {
            (Some(rate), _) if self.kind.is_query() => write!(f, "{rate}")?,
            (Some(rate), _) => write!(f, ":rate={}", format_count(rate))?,
            (None, Some(percent)) => write!(f, ":rate={percent}%")?,
            (None, None) => {}
        }
        if let Some(rows) = self.rows {
            write!(f, ":rows={}", format_count(rows))?;
        }
        if let Some(seconds) = self.seconds {
            write!(f, ":seconds={seconds}")?;
        }
        if let Some(commit) = self.commit {
            write!(f, ":commit={commit}")?;
        }
        match self.delete {
            Some(true) => f.write_str(":delete"),
            Some(false) => f.write_str(":delete=no"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Step {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Step> for String {
    fn from(step: Step) -> String {
        step.to_string()
    }
}

/// Checks that each step finds the tables and indexes it needs.
///
/// # Errors
/// Which step comes too early, too late or twice.
pub fn check_order(steps: &[Step]) -> Result<(), String> {
    let (mut tables, mut indexes) = (false, false);
    for (at, step) in steps.iter().enumerate() {
        let name = step.kind.name();
        let is_measure = |before: &Step| before.kind == step.kind && before.is_unlimited();
        if step.rate_percent.is_some() && !steps[..at].iter().any(is_measure) {
            return Err(format!("`{step}` needs an earlier `{name}` that goes as fast as it can"));
        }
        match step.kind {
            kind if kind.creates_tables() && tables => {
                return Err(format!("`{name}` loads empty tables: it must be the first step"));
            }
            kind if !kind.creates_tables() && !tables => {
                return Err(format!("`{name}` needs filled tables: begin with l.i0 or load"));
            }
            StepKind::CreateIndexes if indexes => {
                return Err("`l.x`: the indexes are there already".into());
            }
            kind if kind.needs_indexes() && !indexes => {
                return Err(format!("`{name}` needs the indexes: put l.x before it, or use load"));
            }
            StepKind::Load => tables = true,
            StepKind::LoadIndexed => (tables, indexes) = (true, true),
            StepKind::CreateIndexes => indexes = true,
            _ => {}
        }
    }
    if steps.is_empty() { Err("no steps".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_prints() {
        let steps = [
            "l.i0",
            "l.i1:rows=500k:delete",
            "l.i2:seconds=10:commit=5:delete=no",
            "qr100",
            "qp0:seconds=3",
            "load:rows=1500:commit=1",
            "update:rate=15k:seconds=3",
            "l.i1:rate=1500:rows=20k",
            "update:rate=75%:seconds=3",
        ];
        for text in steps {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        assert_eq!("qr".parse::<Step>().unwrap().name(), "qr1000");
        assert_eq!("qp:rate=1k".parse::<Step>().unwrap().to_string(), "qp1000");
        assert_eq!("update:rate=15k".parse::<Step>().unwrap().name(), "update@15k");
        assert_eq!("update:rate=75%".parse::<Step>().unwrap().name(), "update@75%");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let error = |text: &str| text.parse::<Step>().unwrap_err();
        assert!(error("l.i9").contains("is no step; use l.i0"));
        assert!(error("scan:rows=5").contains("takes no parameters"));
        assert!(error("load:rate=5").contains("it takes rows, commit"));
        assert!(error("update:rate=0").contains("must not be zero"));
        assert!(error("update:rate=101%").contains("use 1 to 100"));
        assert!(error("update:rate=%").contains("not a number"));
        assert!(error("qr:rate=50%").contains("rows per second"));
        assert!(error("l.i1:rows").contains("needs a value"));
        assert!(error("l.i1:rows=0").contains("must not be zero"));
        assert!(error("qr:rate=5M").contains("more than 1000000"));
        assert!(error("qrx").contains("not a number"));
        assert!(error("l.i0:rows=5:rows=6").contains("`rows` is given twice"));
        assert!(error("update:rate=75%:rate=9").contains("`rate` is given twice"));
        assert!(error("l.i1:delete:delete=no").contains("`delete` is given twice"));
        assert!(error("").contains("is no step"));
    }

    #[test]
    fn order() {
        let check = |text: &str| {
            let steps: Vec<Step> = text.split(',').map(|step| step.parse().unwrap()).collect();
            check_order(&steps)
        };
        assert_eq!(check("l.i0,l.x,l.i1,l.i2,scan,qr,qp"), Ok(()));
        assert_eq!(check("load,l.i1,scan"), Ok(()));
        assert!(check("l.x").unwrap_err().contains("begin with l.i0 or load"));
        assert!(check("l.i0,l.i1").unwrap_err().contains("put l.x before it"));
        assert!(check("l.i0,load").unwrap_err().contains("must be the first"));
        assert!(check("load,l.x").unwrap_err().contains("there already"));
        assert_eq!(check("load,update,l.i1,update:rate=50%"), Ok(()));
        let error = check("load,update:rate=9,l.i1,update:rate=50%").unwrap_err();
        assert!(error.contains("needs an earlier `update` that goes as fast"), "{error}");
    }
}
