//! Why the folders do not prove that a definition is gone.

/// Why that no file defines a daemon, or that another one does, is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("its file is gone, and its folder is being changed")]
    FileGoing,
    #[error("its file is being changed")]
    FileChanging,
    #[error("its file has no document (to end what runs, remove the file or link it to /dev/null)")]
    FileEmpty,
    #[error("its file is not valid")]
    FileInvalid,
    #[error("its file cannot be found")]
    FileNotFound,
    #[error("its file cannot be read now, and what runs may be of a newer version")]
    FileUnread {
        /// Whether what it last defined overrides the API's.
        overrides: bool,
    },
    #[error("a file or folder is empty or broken, or cannot be read")]
    AnyUnread,
    #[error("no file defines it, and where it came from is not remembered")]
    OriginUnknown,
    #[error("its folder is no longer configured")]
    FolderNotConfigured,
    #[error("its folder is missing")]
    FolderMissing,
    #[error("its folder cannot be read")]
    FolderUnread,
    #[error("its folder is being changed")]
    FolderChanging,
    #[error("its folder is now on another file system")]
    OtherFileSystem,
    #[error("the file system of its folder is not mounted")]
    NotMounted,
}
