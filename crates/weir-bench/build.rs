//! Compiles the C side of the WiredTiger adapter, when that is wanted: its API is made of structs of
//! function pointers, which C declares best.

fn main() {
    println!("cargo:rerun-if-changed=src/engines/wiredtiger.c");
    #[cfg(feature = "wiredtiger")]
    {
        cc::Build::new().file("src/engines/wiredtiger.c").warnings(true).compile("weir_wiredtiger");
        println!("cargo:rustc-link-lib=wiredtiger");
    }
}
