//! Enums of which each variant has one name: in files, on the command line, in messages.

/// Declares an enum with a name for each variant, and the conversions between them.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        pub enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            /// Every variant, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The variant's name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The variant that has this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.as_str() == name)
            }
        }
    };
}

pub(crate) use named;
