//! Cost of the hot path: `cargo bench -p weir-redo`.

fn main() {}
