# shellcheck shell=bash
# What the scripts of this directory share: places, messages. Sourced, never run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
# Headers of the server, objects and the plugin: nothing of it goes into git.
out=$root/target/mariadb
headers=$out/headers
plugin=$out/plugin/ha_weir.so
system_plugins=/usr/lib/mysql/plugin
system_config=/etc/mysql/mariadb.conf.d/weir.cnf

# How the handler is compiled.
flags=(-std=gnu++17 -O2 -g -fPIC -fno-omit-frame-pointer -Wall -Wextra -Wno-unused-parameter
    -DNDEBUG -DDBUG_OFF -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -D_FILE_OFFSET_BITS=64
    -isystem "$headers/include" -isystem "$headers/sql" -isystem "$headers/wsrep-lib/include"
    -isystem "$headers/wsrep-lib/wsrep-API/v26" -isystem /usr/include/mariadb/server)

# Packages that must all be of one version with the headers.
packages=(mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common
    libmariadb3 libmariadb-dev libmariadbd19 libmariadbd-dev mariadb-test mariadb-test-data
    mariadb-plugin-rocksdb mariadb-plugin-spider mariadb-backup)

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# What a script has at its head, for `--help`.
print_head() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
}

# For scripts without arguments: who asks for help must not set them off.
take_no_arguments() {
    case ${1:-} in -h | --help) print_head; exit 0 ;; esac
    [ $# -eq 0 ] || fail "\`$1\`: it takes no arguments; see --help"
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Whether the plugin is there and no older than what it is made of, and for.
plugin_is_current() {
    local crates=("$root"/crates/weir{,-ffi,-governor,-os,-page,-redo,-status,-store}/src)
    [ -f "$plugin" ] && [ ! "$out/version" -nt "$plugin" ] && [ -z "$(find "$here" "${crates[@]}" "$root/Cargo.lock" \
        \( -name '*.rs' -o -name '*.cc' -o -name '*.h' -o -name common.sh -o -name exports.ver -o -name Cargo.lock \) -newer "$plugin" -print -quit)" ]
}

# The version of the server that the headers are of: `10.11.18`.
headers_version() {
    [ -f "$headers/VERSION" ] || return 1
    # shellcheck disable=SC1091
    (. "$headers/VERSION" && echo "$MYSQL_VERSION_MAJOR.$MYSQL_VERSION_MINOR.$MYSQL_VERSION_PATCH")
}

# The version of the server that is installed: `10.11.18`.
server_version() {
    mariadbd --no-defaults --version | sed -E 's/.*Ver ([0-9]+\.[0-9]+\.[0-9]+).*/\1/'
}

# Installs the server and builds the plugin, as far as that is still to be done.
make_ready() {
    if ! command -v mariadbd >/dev/null || [ ! -f "$headers/sql/handler.h" ]; then "$here/setup" >&2; fi
    # Nothing must be about an engine of yesterday.
    plugin_is_current || "$here/build" >&2
    [ "$(server_version)" = "$(headers_version)" ] ||
        fail "the plugin is for MariaDB $(headers_version), this server is $(server_version): run mariadb/setup and mariadb/build"
}
