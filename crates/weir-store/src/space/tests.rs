use super::*;
use std::collections::BTreeSet;

/// Units in use, one by one.
#[derive(Default)]
struct Model {
    used: BTreeSet<u64>,
    held: Vec<Extent>,
    pending: Vec<(Lsn, Extent)>,
    /// What is given up stays.
    keeps: bool,
}

impl Model {
    fn take(&mut self, extents: &[Extent], space: &Space) {
        for extent in extents {
            assert!(extent.end_unit() <= space.units());
            for unit in extent.start_unit..extent.end_unit() {
                assert!(self.used.insert(unit), "unit {unit} handed out twice");
            }
        }
        self.held.extend(extents);
    }

    fn drop(&mut self, extent: Extent) {
        for unit in extent.start_unit..extent.end_unit() {
            assert!(self.used.remove(&unit));
        }
    }

    fn check(&self, space: &Space) {
        assert_eq!(space.used(), self.used.len() as u64);
        let pending: u64 = self.pending.iter().map(|(_, e)| u64::from(e.units)).sum();
        assert_eq!(space.pending_units(), pending);
        let is_place = |&at: &u64| (at..at + 4).all(|unit| !self.used.contains(&unit));
        let places = (0..space.units() / 4 * 4).step_by(4).filter(is_place).count() as u64;
        assert!(space.places() <= places);
        if space.holes.iter().all(|&holes| holes == 0) {
            assert_eq!(space.places(), places);
        }
        for (group, &bound) in space.longest.iter().enumerate() {
            let (mut at, end) = (group as u64 * GROUP, (group as u64 + 1) * GROUP);
            while let Some((start, len)) = space.next_run(at, end) {
                assert!(len <= u64::from(bound), "a run of {len} in a group bound by {bound}");
                at = start + len;
            }
        }
    }
}

fn allocate(space: &mut Space, counts: &[u8]) -> Vec<Extent> {
    let mut out = Vec::new();
    while !space.allocate_large(counts, &mut out) {
        let needed = counts[out.len()..].iter().map(|&c| u64::from(c)).sum();
        if !space.wants_growth(needed) && space.allocate_any(counts, &mut out) {
            break;
        }
        space.extend(space.units() + space.step().max(needed));
    }
    out
}

#[test]
fn space_agrees_with_a_model() {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut space = Space::new(rng.u64(..3000));
        let mut model = Model::default();
        for step in 0..600u64 {
            let grow = rng.u32(..10) < if step < 300 { 6 } else { 3 };
            if grow {
                let counts: Vec<u8> = (0..rng.usize(1..200)).map(|_| rng.u8(1..=4)).collect();
                let extents = allocate(&mut space, &counts);
                assert!(extents.iter().map(|e| e.units).eq(counts));
                model.take(&extents, &space);
            } else {
                for _ in 0..rng.usize(..300).min(model.held.len()) {
                    let extent = model.held.swap_remove(rng.usize(..model.held.len()));
                    if rng.bool() {
                        space.give_back(extent);
                        model.drop(extent);
                    } else {
                        let lsn = Lsn(step + rng.u64(..20));
                        space.give_up(extent, lsn);
                        model.pending.push((lsn, extent));
                    }
                }
            }
            if step % 90 == 20 {
                space.hold();
                model.keeps = true;
            } else if step % 90 == 70 {
                assert!(space.is_held() && space.let_go() && !space.let_go());
                model.keeps = false;
            }
            space.release(Lsn(step));
            let stays = |lsn| lsn >= Lsn(step) || model.keeps;
            let (left, free) = model.pending.drain(..).partition(|&(lsn, _)| stays(lsn));
            model.pending = left;
            let free: Vec<_> = free;
            free.into_iter().for_each(|(_, extent)| model.drop(extent));
            let durable = model.pending.iter().filter(|(lsn, _)| *lsn < Lsn(step));
            let held: u64 = durable.map(|(_, extent)| u64::from(extent.units)).sum();
            assert_eq!(space.held_units(), held);
            if step % 50 == 7 {
                space.cut_tail(0);
                let mut walk = space.punch_walk(0);
                while let Some((start, units)) = space.take_to_punch(&mut walk) {
                    assert!(units >= 256 && model.used.range(start..start + units).count() == 0);
                    space.punched(start, units);
                }
            }
            model.check(&space);
        }
    }
}

#[test]
fn a_batch_in_empty_space_is_one_run() {
    let mut space = Space::new(10_000);
    let extents = allocate(&mut space, &[1, 4, 2, 3, 1, 1]);
    assert!(extents.windows(2).all(|w| w[0].end_unit() == w[1].start_unit));
    let more = allocate(&mut space, &[2, 2]);
    assert_eq!(more[0].start_unit, extents[5].end_unit());
}

#[test]
fn a_full_file_is_used_to_the_last_unit_and_then_left_alone() {
    let mut space = Space::new(1000);
    let mut out = Vec::new();
    assert!(space.allocate_large(&[4; 250], &mut out) || space.allocate_any(&[4; 250], &mut out));
    for (i, extent) in out.iter().enumerate() {
        // Free runs of 3, 2 and 1 units, far apart.
        let units = (i % 4) as u8;
        for unit in 0..units {
            space.give_back(Extent { start_unit: extent.start_unit + u64::from(unit), units: 1 });
        }
    }
    let used = space.used();
    let mut got = Vec::new();
    assert!(!space.allocate_any(&[1, 3, 4], &mut got) && got.is_empty());
    assert_eq!(space.used(), used);
    let mut counts = vec![1; 63];
    counts.extend([2; 63]);
    counts.extend([3; 62]);
    assert!(!space.allocate_any(&counts, &mut got) && got.is_empty());
    counts.swap_remove(63);
    assert!(space.allocate_any(&counts, &mut got), "every run fits its count");
    assert_eq!(space.used(), 1000);
}

/// A file that can't grow keeps its places for whole pages as long as smaller runs do.
#[test]
fn a_tight_file_fills_small_runs_first() {
    let mut space = Space::new(400);
    let mut out = Vec::new();
    assert!(space.allocate_any(&[4; 100], &mut out));
    assert_eq!(space.places(), 0);
    for extent in out.iter().take(20) {
        space.give_back(*extent);
    }
    for (extent, units) in out[20..].iter().skip(1).step_by(2).zip([1, 2, 3, 3, 2, 1]) {
        let (start, units) = (extent.start_unit, units as u8);
        space.give_back(Extent { start_unit: start, units });
    }
    assert_eq!(space.places(), 20);
    let mut counts = vec![1, 3, 2, 1, 2, 1, 1, 1];
    let mut got = Vec::new();
    assert!(space.allocate_tight(&counts, &mut got));
    assert_eq!((space.places(), space.used()), (20, 400 - 80));
    assert!(got.iter().map(|extent| extent.units).eq(counts.iter().copied()));
    counts.extend([4; 21]);
    assert!(!space.allocate_tight(&counts, &mut got));
    assert_eq!((space.places(), space.used(), got.len()), (20, 400 - 80, 8));
    counts.pop();
    assert!(space.allocate_tight(&counts, &mut got));
    assert_eq!((space.places(), space.used()), (0, 400));
}

/// A hole is no place: on a full device nothing can be written there.
#[test]
fn holes_are_no_places_until_they_are_filled() {
    let mut space = Space::new(4096);
    assert_eq!(space.places(), 1024);
    let mut walk = space.punch_walk(100);
    let (start, units) = space.take_to_punch(&mut walk).unwrap();
    space.punched(start, units);
    assert_eq!(space.places(), (4096 - units) / 4);
    assert!(space.places() >= 100);
    let (mut out, counts) = (Vec::new(), vec![4; 1024]);
    assert!(space.allocate_any(&counts, &mut out));
    out.iter().for_each(|extent| space.install(*extent));
    out.iter().for_each(|extent| space.give_up(*extent, Lsn(1)));
    space.release(Lsn(2));
    assert_eq!(space.places(), 1024);
}

/// Where the device had no space it is looked for elsewhere, and only then there again.
#[test]
fn on_a_full_device_holes_are_filled_last() {
    let mut space = Space::new(64);
    let allocate = |space: &mut Space, count: usize| {
        let mut out = Vec::new();
        assert!(space.allocate_tight(&vec![4; count], &mut out));
        let starts = out.iter().map(|extent| extent.start_unit).collect::<Vec<_>>();
        (out, starts)
    };
    let (holes, starts) = allocate(&mut space, 6);
    assert_eq!(starts, [0, 4, 8, 12, 16, 20]);
    assert!(space.found_holes(&holes[1..3]) && !space.found_holes(&holes[2..3]));
    holes.iter().for_each(|extent| space.give_back(*extent));
    assert_eq!(space.places(), 14);
    let (rest, starts) = allocate(&mut space, 14);
    assert_eq!((starts[..3].to_vec(), space.places()), (vec![0, 12, 16], 0));
    let (filled, starts) = allocate(&mut space, 2);
    assert_eq!((starts, space.used()), (vec![4, 8], 64));
    let all = [rest, filled].concat();
    all.iter().for_each(|extent| space.install(*extent));
    all.iter().for_each(|extent| space.give_up(*extent, Lsn(1)));
    space.release(Lsn(2));
    assert_eq!(space.places(), 16);
}

#[test]
fn rewriting_everything_moves_it_off_the_tail() {
    let mut space = Space::new(0);
    let mut live = allocate(&mut space, &[2; 40_000]);
    let full = space.units();
    for extent in live.drain(..36_000) {
        space.give_back(extent);
    }
    // What is left, all at the end, is rewritten bit by bit.
    let mut at = 0;
    for _ in 0..400 {
        let extents = allocate(&mut space, &[2; 64]);
        for new in extents {
            space.give_back(std::mem::replace(&mut live[at], new));
            at = (at + 1) % live.len();
        }
    }
    let cut = space.cut_tail(0).unwrap();
    assert!(cut < full / 3, "{cut} units of {full} left");
    assert_eq!(space.units(), cut);
}

/// A tail that had been given back to the file system stayed: it has no places that could be
/// spared.
#[test]
fn a_tail_of_holes_is_cut_off_and_places_are_kept() {
    let mut space = Space::new(0);
    let extents = allocate(&mut space, &[4; 10_000]);
    extents.iter().for_each(|extent| space.install(*extent));
    for extent in &extents[100..] {
        space.give_up(*extent, Lsn(1));
    }
    space.release(Lsn(2));
    let kept = 2000;
    let mut walk = space.punch_walk(kept);
    while let Some((start, units)) = space.take_to_punch(&mut walk) {
        space.punched(start, units);
    }
    assert!((kept..2 * kept).contains(&space.places()), "{} places", space.places());
    assert!(space.cut_tail(kept).unwrap() < 4 * (100 + 2 * kept));
    assert!(space.places() >= kept);
    assert_eq!(space.cut_tail(kept), None, "all else is kept");
    // None of them is wanted any more.
    assert!(space.cut_tail(0).unwrap() < 4000);
}

/// Below a ceiling anywhere in a word, images are placed as long as there is room, and nothing
/// twice.
#[test]
fn a_ceiling_is_kept_wherever_it_is() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut below = 0;
    for _ in 0..300 {
        let mut space = Space::new(rng.u64(4000..20_000));
        let mut placed = Vec::new();
        let counts: Vec<u8> = (0..space.units() / 4).map(|_| rng.u8(1..=4)).collect();
        assert!(space.allocate_any(&counts, &mut placed));
        let kept = rng.u8(..150);
        let keeps: Vec<bool> = placed.iter().map(|_| rng.u8(..) < kept).collect();
        for (extent, _) in placed.iter().zip(&keeps).filter(|(_, keeps)| !**keeps) {
            space.give_back(*extent);
        }
        let Some(ceiling) = space.lower_ceiling() else { continue };
        for _ in 0..rng.usize(1..40) {
            let counts: Vec<u8> = (0..rng.usize(1..60)).map(|_| rng.u8(1..=4)).collect();
            let (mut out, used) = (Vec::new(), space.used());
            if !space.allocate_large(&counts, &mut out) && !space.allocate_any(&counts, &mut out) {
                break;
            }
            let units: u64 = counts.iter().map(|&c| u64::from(c)).sum();
            assert_eq!(space.used(), used + units);
            below += out.iter().filter(|extent| extent.end_unit() <= ceiling).count();
        }
        space.lift_ceiling();
    }
    assert!(below > 10_000, "{below}");
}
