//! Cost of the hot path, in nanoseconds per group: `cargo bench -p weir-redo`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_os::SimDisk;
use weir_redo::{Admission, Redo, RedoOptions};

const ROUNDS: usize = 40;
const GROUPS: usize = 100_000;

fn main() {
    for payload in [20, 60, 250, 4000, 16_000] {
        let bytes = vec![7u8; payload];
        let groups = GROUPS.min((12 << 20) / (payload + 16));
        let o = RedoOptions {
            capacity_bytes: 64 << 20,
            segment_bytes: 16 << 20,
            buffer_bytes: 16 << 20,
            database_id: 1,
        };
        let redo = Redo::create(Arc::new(SimDisk::new(1)), &o).expect("the simulated disk works");
        let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..groups {
                let credit = redo.try_admit(payload, Admission::User).expect("there is space");
                redo.append(credit, &bytes);
            }
            let elapsed = start.elapsed();
            best = best.min(elapsed);
            total += elapsed;
            let end = redo.write_step(true).expect("the simulated disk works");
            redo.set_checkpoint(end).expect("the simulated disk works");
        }
        let per = |time: Duration| time.as_nanos() as f64 / groups as f64;
        println!(
            "payload {payload:>6}: mean {:>7.1} ns, best round {:>7.1} ns per admit and append",
            per(total) / ROUNDS as f64,
            per(best)
        );
    }
}
