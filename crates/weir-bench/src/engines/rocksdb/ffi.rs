//! The part of `rocksdb/c.h` (7.8) that the adapter uses.

#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_char, c_int, c_uchar, c_void};

pub enum rocksdb_t {}
pub enum options_t {}
pub enum table_options_t {}
pub enum cache_t {}
pub enum filter_t {}
pub enum cf_t {}
pub enum batch_t {}
pub enum iter_t {}
pub enum read_options_t {}
pub enum write_options_t {}
pub enum env_options_t {}
pub enum sst_writer_t {}
pub enum ingest_options_t {}
pub enum slice_t {}

pub const LZ4: c_int = 4;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_free(pointer: *mut c_void);
    pub fn rocksdb_property_int_cf(
        db: *mut rocksdb_t,
        cf: *mut cf_t,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;
    pub fn rocksdb_options_create() -> *mut options_t;
    pub fn rocksdb_options_destroy(options: *mut options_t);
    pub fn rocksdb_options_set_create_if_missing(options: *mut options_t, on: c_uchar);
    pub fn rocksdb_options_set_create_missing_column_families(options: *mut options_t, on: c_uchar);
    pub fn rocksdb_options_set_max_background_jobs(options: *mut options_t, jobs: c_int);
    pub fn rocksdb_options_set_compression(options: *mut options_t, kind: c_int);
    pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
        options: *mut options_t,
        on: c_uchar,
    );
    pub fn rocksdb_options_set_write_buffer_size(options: *mut options_t, bytes: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut options_t, count: c_int);
    pub fn rocksdb_options_set_db_write_buffer_size(options: *mut options_t, bytes: usize);
    pub fn rocksdb_options_set_max_bytes_for_level_base(options: *mut options_t, bytes: u64);
    pub fn rocksdb_options_set_max_total_wal_size(options: *mut options_t, bytes: u64);
    pub fn rocksdb_options_set_bytes_per_sync(options: *mut options_t, bytes: u64);
    pub fn rocksdb_options_set_max_open_files(options: *mut options_t, count: c_int);
    pub fn rocksdb_options_set_manual_wal_flush(options: *mut options_t, on: c_uchar);
    pub fn rocksdb_options_set_use_direct_reads(options: *mut options_t, on: c_uchar);
    pub fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: *mut options_t,
        on: c_uchar,
    );
    pub fn rocksdb_options_compaction_readahead_size(options: *mut options_t, bytes: usize);
    pub fn rocksdb_options_set_block_based_table_factory(
        options: *mut options_t,
        table: *mut table_options_t,
    );
    pub fn rocksdb_block_based_options_create() -> *mut table_options_t;
    pub fn rocksdb_block_based_options_destroy(table: *mut table_options_t);
    pub fn rocksdb_block_based_options_set_block_size(table: *mut table_options_t, bytes: usize);
    pub fn rocksdb_block_based_options_set_block_cache(
        table: *mut table_options_t,
        cache: *mut cache_t,
    );
    pub fn rocksdb_block_based_options_set_filter_policy(
        table: *mut table_options_t,
        filter: *mut filter_t,
    );
    pub fn rocksdb_block_based_options_set_format_version(
        table: *mut table_options_t,
        version: c_int,
    );
    pub fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        table: *mut table_options_t,
        on: c_uchar,
    );
    pub fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
        table: *mut table_options_t,
        on: c_uchar,
    );
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut filter_t;
    pub fn rocksdb_cache_create_lru(bytes: usize) -> *mut cache_t;
    pub fn rocksdb_cache_destroy(cache: *mut cache_t);
    pub fn rocksdb_open_column_families(
        options: *const options_t,
        name: *const c_char,
        count: c_int,
        names: *const *const c_char,
        cf_options: *const *const options_t,
        handles: *mut *mut cf_t,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_t;
    pub fn rocksdb_column_family_handle_destroy(handle: *mut cf_t);
    pub fn rocksdb_close(db: *mut rocksdb_t);
    pub fn rocksdb_flush_wal(db: *mut rocksdb_t, sync: c_uchar, error: *mut *mut c_char);
    pub fn rocksdb_writeoptions_create() -> *mut write_options_t;
    pub fn rocksdb_writeoptions_destroy(options: *mut write_options_t);
    pub fn rocksdb_writeoptions_set_sync(options: *mut write_options_t, on: c_uchar);
    pub fn rocksdb_readoptions_create() -> *mut read_options_t;
    pub fn rocksdb_readoptions_destroy(options: *mut read_options_t);
    pub fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut read_options_t,
        key: *const c_char,
        size: usize,
    );
    pub fn rocksdb_readoptions_set_readahead_size(options: *mut read_options_t, bytes: usize);
    pub fn rocksdb_writebatch_create() -> *mut batch_t;
    pub fn rocksdb_writebatch_destroy(batch: *mut batch_t);
    pub fn rocksdb_writebatch_clear(batch: *mut batch_t);
    pub fn rocksdb_writebatch_put_cf(
        batch: *mut batch_t,
        cf: *mut cf_t,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
    );
    pub fn rocksdb_writebatch_delete_cf(
        batch: *mut batch_t,
        cf: *mut cf_t,
        key: *const c_char,
        size: usize,
    );
    pub fn rocksdb_writebatch_singledelete_cf(
        batch: *mut batch_t,
        cf: *mut cf_t,
        key: *const c_char,
        size: usize,
    );
    pub fn rocksdb_write(
        db: *mut rocksdb_t,
        options: *const write_options_t,
        batch: *mut batch_t,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_get_pinned_cf(
        db: *mut rocksdb_t,
        options: *const read_options_t,
        cf: *mut cf_t,
        key: *const c_char,
        size: usize,
        error: *mut *mut c_char,
    ) -> *mut slice_t;
    pub fn rocksdb_pinnableslice_value(slice: *const slice_t, size: *mut usize) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: *mut slice_t);
    pub fn rocksdb_create_iterator_cf(
        db: *mut rocksdb_t,
        options: *const read_options_t,
        cf: *mut cf_t,
    ) -> *mut iter_t;
    pub fn rocksdb_iter_destroy(iter: *mut iter_t);
    pub fn rocksdb_iter_valid(iter: *const iter_t) -> c_uchar;
    pub fn rocksdb_iter_seek(iter: *mut iter_t, key: *const c_char, size: usize);
    pub fn rocksdb_iter_next(iter: *mut iter_t);
    pub fn rocksdb_iter_key(iter: *const iter_t, size: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_value(iter: *const iter_t, size: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_get_error(iter: *const iter_t, error: *mut *mut c_char);
    pub fn rocksdb_envoptions_create() -> *mut env_options_t;
    pub fn rocksdb_envoptions_destroy(options: *mut env_options_t);
    pub fn rocksdb_sstfilewriter_create(
        env: *const env_options_t,
        options: *const options_t,
    ) -> *mut sst_writer_t;
    pub fn rocksdb_sstfilewriter_destroy(writer: *mut sst_writer_t);
    pub fn rocksdb_sstfilewriter_open(
        writer: *mut sst_writer_t,
        name: *const c_char,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_sstfilewriter_put(
        writer: *mut sst_writer_t,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_sstfilewriter_finish(writer: *mut sst_writer_t, error: *mut *mut c_char);
    pub fn rocksdb_ingestexternalfileoptions_create() -> *mut ingest_options_t;
    pub fn rocksdb_ingestexternalfileoptions_destroy(options: *mut ingest_options_t);
    pub fn rocksdb_ingestexternalfileoptions_set_move_files(
        options: *mut ingest_options_t,
        on: c_uchar,
    );
    pub fn rocksdb_ingest_external_file_cf(
        db: *mut rocksdb_t,
        cf: *mut cf_t,
        files: *const *const c_char,
        count: usize,
        options: *const ingest_options_t,
        error: *mut *mut c_char,
    );
}
