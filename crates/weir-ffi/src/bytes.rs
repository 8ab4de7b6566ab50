//! Byte strings as they go over the border.

use weir::schema::SchemaError;

/// Bytes that belong to somebody else.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirBytes {
    /// Where they begin; may be null if there are none.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

impl WeirBytes {
    /// The bytes, for as long as the caller of the interface keeps them.
    ///
    /// # Safety
    /// `data` points to `len` readable bytes that nobody changes during `'a`.
    pub unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise, and it isn't null as there are bytes.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// As a name.
    ///
    /// # Errors
    /// [`SchemaError::NotText`]: another name must not be taken for this one.
    ///
    /// # Safety
    /// As [`WeirBytes::slice`].
    pub unsafe fn name(self) -> weir::Result<String> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.slice() };
        let not_text = |_| SchemaError::NotText(String::from_utf8_lossy(bytes).into_owned());
        Ok(str::from_utf8(bytes).map_err(not_text)?.to_string())
    }

    /// As text for people; bytes that are no UTF-8 are replaced.
    ///
    /// # Safety
    /// As [`WeirBytes::slice`].
    pub unsafe fn text(self) -> String {
        // SAFETY: the caller's promise.
        String::from_utf8_lossy(unsafe { self.slice() }).into_owned()
    }
}

impl From<&[u8]> for WeirBytes {
    fn from(bytes: &[u8]) -> Self {
        WeirBytes { data: bytes.as_ptr(), len: bytes.len() }
    }
}

/// Called with bytes, which are valid during the call. `context` is what the caller handed over.
pub type WeirBytesCallback = extern "C" fn(context: *mut std::ffi::c_void, bytes: WeirBytes);
