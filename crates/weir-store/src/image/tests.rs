use super::*;
use crate::extent::{Extent, Relocation};
use std::ops::Range;

const DATABASE: u64 = 0x2122_2324_2526_2728;
const PAGE: PageId = PageId(0x0102_0304);
const LSN: Lsn = Lsn(0x1112_1314_1516_1718);

fn entry(page: PageId, lsn: Lsn, units: u8) -> Entry {
    Relocation { page, extent: Extent { start_unit: 9, units }, page_lsn: lsn }.entry()
}

fn expected(entry: Entry) -> Expected<'static> {
    Expected {
        file: "dir/data",
        offset: 9 * 4096,
        database_id: DATABASE,
        page: PAGE,
        entry: Some(entry),
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..PAGE_SIZE).map(|_| rng.u8(..)).collect()
}

/// A page that is zeros in some places.
fn zeros_in(mut page: Vec<u8>, zeros: Range<usize>) -> Vec<u8> {
    page[zeros].fill(0);
    page
}

/// Half noise, half zeros.
fn half_full(seed: u64) -> Vec<u8> {
    zeros_in(noise(seed), 2000..10_000)
}

fn encode(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    encode_copy(compression, &PageCopy::whole(PAGE, LSN, bytes))
}

/// The image of a page whose hole is there.
fn encode_without(compression: Compression, bytes: &[u8], hole: Range<usize>) -> Vec<u8> {
    let used = [&bytes[IMAGE_HEADER..hole.start], &bytes[hole.end..]].concat();
    let (page, lsn, hole) = (PAGE, LSN, hole.start);
    encode_copy(compression, &PageCopy { page, lsn, used: &used, hole, alike: 1 })
}

fn encode_copy(compression: Compression, copy: &PageCopy<'_>) -> Vec<u8> {
    let mut out = vec![0xEE; PAGE_SIZE];
    let units = Encoder::new(compression, DATABASE).encode(copy, &mut out);
    out.truncate(usize::from(units) * UNIT);
    out
}

fn in_memory(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..IMAGE_HEADER].fill(0);
    bytes[4..8].copy_from_slice(&PAGE.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&LSN.0.to_le_bytes());
    bytes
}

fn reseal(image: &mut [u8]) {
    let payload = usize::from(u16::from_le_bytes(field(image, 16)));
    let crc = checksum(&image[..(IMAGE_HEADER + payload).min(image.len())]);
    image[20..24].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn header_is_golden() {
    let bytes = vec![7; PAGE_SIZE];
    let image = encode(Compression::None, &bytes);
    assert_eq!(image.len(), PAGE_SIZE);
    let golden = [
        0x32, 0x57, 0, 0, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0xE0, 0x3F,
        0, 0,
    ];
    assert_eq!(image[..20], golden);
    assert_eq!(image[20..24], [214, 235, 178, 124]);
    assert_eq!(image[24..32], DATABASE.to_le_bytes());
    assert!(image[32..].iter().all(|&b| b == 7));
    let mut out = vec![0; PAGE_SIZE];
    let lsn = decode(&image, &expected(entry(PAGE, LSN, 4)), &mut out).unwrap();
    assert_eq!((lsn, out), (LSN, in_memory(bytes)));
}

#[test]
fn pages_come_back_whatever_the_compression() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        for (bytes, packs) in [(noise(1), false), (half_full(2), true), (vec![0; PAGE_SIZE], true)]
        {
            let image = encode(compression, &bytes);
            let packs = packs && compression != Compression::None;
            assert_eq!(image.len() < PAGE_SIZE, packs, "{compression:?}");
            let units = (image.len() / UNIT) as u8;
            let mut out = vec![0xAA; PAGE_SIZE];
            decode(&image, &expected(entry(PAGE, LSN, units)), &mut out).unwrap();
            assert_eq!(out, in_memory(bytes));
        }
    }
}

#[test]
fn the_hole_of_a_page_takes_no_room_and_comes_back_as_zeros() {
    const FRONT: usize = 64;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        for (hole, units) in [
            (FRONT..PAGE_SIZE, 1),
            (FRONT..FRONT, 4),
            (2000..2001, 4),
            (2000..10_000, 3),
            (FRONT..FRONT + 3 * UNIT, 1),
            (PAGE_SIZE - UNIT..PAGE_SIZE, 3),
            (PAGE_SIZE - UNIT + 1..PAGE_SIZE, 4),
            (PAGE_SIZE..PAGE_SIZE, 4),
        ] {
            let bytes = zeros_in(noise(7), hole.clone());
            let image = encode_without(compression, &bytes, hole.clone());
            assert_eq!(image.len(), units * UNIT, "{compression:?}, {hole:?}");
            let mut out = vec![0xAA; PAGE_SIZE];
            decode(&image, &expected(entry(PAGE, LSN, units as u8)), &mut out).unwrap();
            assert!(out == in_memory(bytes), "{compression:?}, {hole:?}");
        }
    }
    let image = encode_without(Compression::None, &noise(7), 2000..10_000);
    assert_eq!(image[16..20], [0xA0, 0x20, 0xD0, 0x07], "payload bytes and hole are golden");
    // A hole and what can be compressed besides.
    let bytes = zeros_in(half_full(8), 11_000..13_000);
    let image = encode_without(Compression::Lz4, &bytes, 11_000..13_000);
    assert_eq!((image[2], image.len()), (LZ4, 2 * UNIT));
    let mut out = vec![0xAA; PAGE_SIZE];
    decode(&image, &expected(entry(PAGE, LSN, 2)), &mut out).unwrap();
    assert!(out == in_memory(bytes));
}

#[test]
fn a_hole_outside_of_the_page_is_refused() {
    let image = encode_without(Compression::None, &noise(9), 2000..10_000);
    let mut out = vec![0; PAGE_SIZE];
    for hole in [1, 31, IMAGE_HEADER + 8352 + 1, PAGE_SIZE, usize::from(u16::MAX), 0] {
        let mut image = image.clone();
        image[18..20].copy_from_slice(&(hole as u16).to_le_bytes());
        reseal(&mut image);
        let error = decode(&image, &expected(entry(PAGE, LSN, 3)), &mut out).unwrap_err();
        assert!(error.to_string().contains("unpacked page"), "{hole}: {error}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let image = encode(Compression::Lz4, &half_full(3));
    let used = IMAGE_HEADER + usize::from(u16::from_le_bytes(field(&image, 16)));
    let expected = expected(entry(PAGE, LSN, (image.len() / UNIT) as u8));
    let mut out = vec![0; PAGE_SIZE];
    for at in (0..IMAGE_HEADER).chain((IMAGE_HEADER..used).step_by(97)) {
        for bit in 0..8 {
            let mut bad = image.clone();
            bad[at] ^= 1 << bit;
            let error = decode(&bad, &expected, &mut out).unwrap_err().to_string();
            assert!(error.contains("dir/data is corrupt at offset 36864 (page 16909060)"));
        }
    }
}

#[test]
fn an_image_of_another_page_database_or_lsn_is_refused() {
    let image = encode(Compression::None, &noise(4));
    let mut out = vec![0; PAGE_SIZE];
    let other = Expected { page: PageId(5), ..expected(entry(PageId(5), LSN, 4)) };
    let error = decode(&image, &other, &mut out).unwrap_err().to_string();
    assert!(error.contains("image of another page: expected page 5"), "{error}");
    let other = Expected { database_id: DATABASE + 1, ..expected(entry(PAGE, LSN, 4)) };
    let error = decode(&image, &other, &mut out).unwrap_err().to_string();
    assert!(error.contains("image of another database: expected database 2122"), "{error}");
    let newer = expected(entry(PAGE, Lsn(LSN.0 + 1), 4));
    let error = decode(&image, &newer, &mut out).unwrap_err().to_string();
    assert!(error.contains("lost write"), "{error}");
}

#[test]
fn any_bytes_decode_or_fail() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut out = vec![0; PAGE_SIZE];
    let all = [Compression::None, Compression::Lz4, Compression::Zstd(1)];
    let whole = all.map(|c| encode(c, &half_full(6)));
    let parts = all.map(|c| encode_without(c, &half_full(6), 11_000..13_000));
    let packed = [whole, parts].concat();
    for round in 0..3000 {
        // A damaged image with a checksum that matches reaches the decompressor.
        let mut image = packed[round % packed.len()].clone();
        for _ in 0..rng.usize(1..6) {
            let at = if rng.bool() { rng.usize(..64) } else { rng.usize(..image.len()) };
            image[at] = rng.u8(..);
        }
        reseal(&mut image);
        let units = (image.len() / UNIT) as u8;
        let _ = decode(&image, &expected(entry(PAGE, LSN, units)), &mut out);
        let units = rng.u8(1..=4);
        let wild: Vec<u8> = (0..usize::from(units) * UNIT).map(|_| rng.u8(..)).collect();
        assert!(decode(&wild, &expected(entry(PAGE, LSN, units)), &mut out).is_err());
    }
}
