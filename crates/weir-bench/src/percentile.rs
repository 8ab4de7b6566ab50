//! What `ips.99` and `QPS.99` mean.

/// The rate that at least 99 % of the seconds reach, counted from the top: of 1000 seconds the
/// eleventh slowest, of fewer than 100 the slowest. `None` without a single second.
pub fn rate_99(rates: &[f64]) -> Option<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(rates.len() / 100).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_seconds_it_is_the_slowest() {
        assert_eq!(rate_99(&[]), None);
        assert_eq!(rate_99(&[5.0]), Some(5.0));
        assert_eq!(rate_99(&[9.0, 3.0, 7.0]), Some(3.0));
        let mut rates = vec![10.0; 98];
        rates.push(1.0);
        assert_eq!(rate_99(&rates), Some(1.0));
    }

    #[test]
    fn at_least_99_of_100_seconds_reach_it() {
        for seconds in [1usize, 99, 100, 101, 199, 200, 1000, 1234] {
            let rates: Vec<f64> = (0..seconds).map(|i| ((i * 7919) % seconds) as f64).collect();
            let rate = rate_99(&rates).unwrap();
            let reached = rates.iter().filter(|&&r| r >= rate).count();
            let above = rates.iter().filter(|&&r| r > rate).count();
            assert!(reached * 100 >= seconds * 99, "{seconds}: {reached} reach {rate}");
            assert!(above * 100 < seconds * 99, "{seconds}: a higher rate would do");
        }
    }

    #[test]
    fn one_bad_second_in_a_hundred_is_forgiven_two_are_not() {
        let mut rates = vec![100.0; 100];
        rates[17] = 0.0;
        assert_eq!(rate_99(&rates), Some(100.0));
        rates[60] = 10.0;
        assert_eq!(rate_99(&rates), Some(10.0));
    }
}
