# shellcheck shell=bash How a private server of each storage engine is set, so that all have the
# same memory, redo log and promise of a commit: the one place that knows. Sourced by `run`.
#
# Each is set as somebody would who knows it and wants it to look good: files past the page cache,
# no neighbours flushed on a device without seeks, InnoDB's io_capacity at what its users settle on
# instead of 200. Where a commit need not be on the device, InnoDB's log goes to the page cache, as
# Weir's does: each commit would take one of the device's operations otherwise. MyRocks looks for
# deadlocks, as the others do, instead of waiting for a second. What is not named here has the
# server's default: InnoDB's doublewrite buffer is on.

# The bytes of a size such as 512M.
in_bytes() {
    numfmt --from=iec "${1%B}" 2>/dev/null || fail "\`$1\` is no size such as 512M"
}

# A choice of three by durability: for sync, write and relaxed.
by_durability() {
    case $durability in
    sync) echo "$1" ;;
    write) echo "$2" ;;
    relaxed) echo "$3" ;;
    *) fail "\`$durability\` is no durability; use sync, write or relaxed" ;;
    esac
}

# Sets `engine_options` to what a server needs whose tables are in `engine`: from memory, redo,
# durability.
set_engine_options() {
    local memory_bytes redo_bytes at_commit
    memory_bytes=$(in_bytes "$memory")
    redo_bytes=$(in_bytes "$redo")
    at_commit=$(by_durability 1 2 0)
    engine_options=(--default-storage-engine="$engine" --skip-name-resolve --max-connections=1100)
    case $engine in
    weir) add_weir ;;
    innodb) add_innodb ;;
    rocksdb) add_rocksdb ;;
    *) fail "\`$engine\` is no engine that can be set here; use weir, innodb or rocksdb" ;;
    esac
}

# The server's own tables are InnoDB's: it needs little, and its log counts as the server's size.
add_little_innodb() {
    engine_options+=(--innodb-buffer-pool-size=16M --innodb-log-file-size=4M)
}

add_weir() {
    add_little_innodb
    engine_options+=(--weir-memory="$memory_bytes" --weir-redo-capacity="$redo_bytes"
        --weir-durability="$durability")
}

add_innodb() {
    engine_options+=(--innodb-buffer-pool-size="$memory_bytes" --innodb-log-file-size="$redo_bytes"
        --innodb-flush-log-at-trx-commit="$at_commit" --innodb-flush-method=O_DIRECT
        --innodb-flush-neighbors=0 --innodb-io-capacity=2000 --innodb-io-capacity-max=4000
        --innodb-log-file-buffering="$(by_durability OFF ON ON)")
}

# A quarter of the memory is for memtables.
add_rocksdb() {
    local memtables=$((memory_bytes / 4)) memtable=$((memory_bytes / 16)) cf
    if [ "$memtable" -gt $((32 << 20)) ]; then memtable=$((32 << 20)); fi
    cf="write_buffer_size=$memtable;max_write_buffer_number=6;max_bytes_for_level_base=$((8 * memtable))"
    cf+=";compression=kLZ4Compression;level_compaction_dynamic_level_bytes=true"
    cf+=";block_based_table_factory={block_size=16384;cache_index_and_filter_blocks=1"
    cf+=";pin_l0_filter_and_index_blocks_in_cache=1;filter_policy=bloomfilter:10:false}"
    add_little_innodb
    engine_options+=(--plugin-load-add=ha_rocksdb.so --rocksdb-deadlock-detect=ON
        --rocksdb-block-cache-size=$((memory_bytes - memtables))
        --rocksdb-db-write-buffer-size="$memtables" --rocksdb-max-total-wal-size="$redo_bytes"
        --rocksdb-flush-log-at-trx-commit="$at_commit" --rocksdb-max-background-jobs=$(($(nproc) + 1))
        --rocksdb-use-direct-reads=ON --rocksdb-use-direct-io-for-flush-and-compaction=ON
        --rocksdb-compaction-readahead-size=2M --rocksdb-default-cf-options="$cf")
}

# Adds the binary log: rows, synced when commits are.
add_binlog_options() {
    mkdir -p "$dir/binlog"
    options+=(--log-bin="$dir/binlog/log" --binlog-format=ROW --server-id=1
        --max-binlog-size=1G --sync-binlog="$(by_durability 1 0 0)")
}
