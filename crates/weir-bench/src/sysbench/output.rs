//! What sysbench prints while it runs with `--report-interval=1`.

use super::figures::Figures;
use serde::{Deserialize, Serialize};

/// One second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// From 1.
    pub second: u32,
    /// Transactions per second.
    pub transactions: f64,
    /// Statements per second.
    pub queries: f64,
    /// What 95 % of the transactions did not exceed.
    pub latency_ms_95: f64,
    /// Transactions per second that the server rolled back.
    pub errors: f64,
    /// The storage engine's figures at its end, as far as they were asked for.
    #[serde(default)]
    pub figures: Figures,
}

/// All seconds in `text`.
pub fn seconds(text: &str) -> Vec<Second> {
    text.lines().filter_map(second).collect()
}

/// A line such as `[ 3s ] thds: 8 tps: 1.00 qps: 2.00 (r/w/o: ...) lat (ms,95%): 3.00 err/s: 0.00
/// ...`.
fn second(line: &str) -> Option<Second> {
    let (number, rest) = line.strip_prefix('[')?.split_once("s ]")?;
    let value = |name: &str| -> Option<f64> {
        rest.split_once(name)?.1.split_whitespace().next()?.parse().ok()
    };
    Some(Second {
        second: number.trim().parse().ok()?,
        transactions: value(" tps:")?,
        queries: value(" qps:")?,
        latency_ms_95: value(" lat (ms,95%):")?,
        errors: value(" err/s:")?,
        figures: Figures::new(),
    })
}

/// Transactions in all, from the summary at the end.
pub fn transactions(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("transactions:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Threads started!

[ 1s ] thds: 4 tps: 845.75 qps: 16953.91 (r/w/o: 11875.43/3383.99/1694.49) lat (ms,95%): 6.55 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 0.00 qps: 0.00 (r/w/o: 0.00/0.00/0.00) lat (ms,95%): 0.00 err/s: 2.00 reconn/s: 0.00
SQL statistics:
    queries performed:
        read:                            23702
    transactions:                        1693   (846.05 per sec.)
";

    #[test]
    fn every_second_is_read() {
        let seconds = seconds(OUTPUT);
        assert_eq!(seconds.len(), 2);
        assert_eq!(
            seconds[0],
            Second {
                second: 1,
                transactions: 845.75,
                queries: 16953.91,
                latency_ms_95: 6.55,
                errors: 0.0,
                figures: Figures::new(),
            }
        );
        assert_eq!((seconds[1].second, seconds[1].transactions, seconds[1].errors), (2, 0.0, 2.0));
        assert_eq!(transactions(OUTPUT), Some(1693));
    }

    #[test]
    fn other_lines_are_no_seconds() {
        assert!(seconds("[ xs ] tps: 1\nFATAL: error 2002\n[ 1s ] thds: 1").is_empty());
        assert_eq!(transactions("nothing"), None);
    }
}
