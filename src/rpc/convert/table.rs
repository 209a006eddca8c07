//! One table for a message: both directions of its conversion are made of it.
//!
//! A line for each field of the plain data gives its [`Codec`](super::codec::Codec), and the name of the field of the
//! message where that is another one. Each field of either side has to stand in the table, or it does not compile.
//!
//! ```text
//! message! {
//!     HostLaunch = ShepherdLaunch;        the plain type, and the message
//!     key: Required,                      as `key` there
//!     kill_grace = kill_grace_ms: Millis,
//!     moved = (number, born): Moves,      of several fields of the message
//!     here pid: 0,                        the message has none: what it is when it has been read
//!     unread again,                       the plain data has none
//!     checked by ranks,                   a last judgement: fn(HostLaunch) -> Result<HostLaunch, Malformed>
//! }
//! variants! {
//!     FromPeer = FromPeer.message: from_peer::Message;
//!     Ready,                                              an empty message
//!     NotNow(not_now: Text),
//!     Refused { text: Text, cause: Optional } = Refused,  fields of the message `Refused`
//! }
//! flat! {
//!     Cause = Cause.kind: cause::Kind; absent Unknown,    a message that has its kind beside the fields of all
//!     FrontGone,
//!     Kill { signal: SIGNAL, uid: Same },
//! }
//! kinds! { Phase = inventory_item::Phase { Placed, Ended } }
//! ```

// (Where `unused_parens` is allowed: the names of several fields are a tuple, and that of one is itself.)

/// Plain data with named fields, and its message.
macro_rules! message {
    ($plain:ident = $wire:ident; $($rest:tt)*) => { message!(@ [$plain $wire] [] [] [] [] $($rest)*); };
    (@ $types:tt $fields:tt [$($here:tt)*] $unread:tt $check:tt here $name:ident: $value:expr, $($rest:tt)*) => {
        message!(@ $types $fields [$($here)* ($name $value)] $unread $check $($rest)*);
    };
    (@ $types:tt $fields:tt $here:tt [$($unread:tt)*] $check:tt unread $name:ident, $($rest:tt)*) => {
        message!(@ $types $fields $here [$($unread)* $name] $check $($rest)*);
    };
    (@ $types:tt $fields:tt $here:tt $unread:tt [] checked by $check:path, $($rest:tt)*) => {
        message!(@ $types $fields $here $unread [$check] $($rest)*);
    };
    (@ $types:tt [$($fields:tt)*] $here:tt $unread:tt $check:tt $name:ident: $codec:expr, $($rest:tt)*) => {
        message!(@ $types [$($fields)* ($name ($name) $codec)] $here $unread $check $($rest)*);
    };
    (@ $types:tt [$($fields:tt)*] $here:tt $unread:tt $check:tt
        $name:ident = $wire:ident: $codec:expr, $($rest:tt)*) => {
        message!(@ $types [$($fields)* ($name ($wire) $codec)] $here $unread $check $($rest)*);
    };
    (@ $types:tt [$($fields:tt)*] $here:tt $unread:tt $check:tt
        $name:ident = ($($wire:ident),+): $codec:expr, $($rest:tt)*) => {
        message!(@ $types [$($fields)* ($name ($($wire),+) $codec)] $here $unread $check $($rest)*);
    };
    (@ [$plain:ident $wire:ident] [$(($name:ident ($($field:ident),+) $codec:expr))*]
        [$(($here:ident $value:expr))*] [$($unread:ident)*] [$($check:path)?]) => {
        impl From<$plain> for $crate::rpc::pb::$wire {
            fn from(plain: $plain) -> Self {
                let $plain { $($name,)* $($here: _,)* } = plain;
                let written = ($($crate::rpc::convert::codec::Codec::write($codec, $name),)*);
                #[allow(unused_parens)]
                let ($(($($field),+),)*) = written;
                Self { $($($field,)+)* $($unread: Default::default(),)* }
            }
        }

        impl TryFrom<$crate::rpc::pb::$wire> for $plain {
            type Error = $crate::rpc::convert::Malformed;
            fn try_from(wire: $crate::rpc::pb::$wire) -> Result<Self, Self::Error> {
                let $crate::rpc::pb::$wire { $($($field,)+)* $($unread: _,)* } = wire;
                let of = |field| $crate::rpc::convert::Field(stringify!($wire), field);
                let read = ($($crate::rpc::convert::codec::Codec::read(
                    $codec,
                    of($crate::rpc::convert::table::first!($($field),+)),
                    ($($field),+),
                )?,)*);
                let ($($name,)*) = read;
                let plain = $plain { $($name,)* $($here: $value,)* };
                $(let plain = $check(plain)?;)?
                Ok(plain)
            }
        }
    };
}

/// An `enum` with data, and the `oneof` that it is in a message.
macro_rules! variants {
    ($plain:ident = $message:ident.$field:ident: $($wire:ident)::+; $($rest:tt)*) => {
        variants!($plain = $($wire)::+, in $message.$field; $($rest)*);

        impl From<$plain> for $crate::rpc::pb::$message {
            fn from(plain: $plain) -> Self {
                Self { $field: Some(plain.into()) }
            }
        }

        impl TryFrom<$crate::rpc::pb::$message> for $plain {
            type Error = $crate::rpc::convert::Malformed;
            fn try_from(wire: $crate::rpc::pb::$message) -> Result<Self, Self::Error> {
                let field = $crate::rpc::convert::Field(stringify!($message), stringify!($field));
                field.variant(wire.$field)?.try_into()
            }
        }
    };
    ($plain:ident = $($wire:ident)::+, in $message:ident.$field:ident; $($rest:tt)*) => {
        variants!(@ [$plain [$($wire)::+] $message $field] [] [] $($rest)*);
    };
    // Those of the `oneof` that are none of the plain data's.
    (@ $types:tt $variants:tt [] unread $why:literal: $($name:ident)|+, $($rest:tt)*) => {
        variants!(@ $types $variants [$why $($name)+] $($rest)*);
    };
    (@ $types:tt [$($variants:tt)*] $unread:tt $name:ident, $($rest:tt)*) => {
        variants!(@ $types [$($variants)* ($name [_] [] [])] $unread $($rest)*);
    };
    (@ $types:tt [$($variants:tt)*] $unread:tt $name:ident($value:ident: $codec:expr), $($rest:tt)*) => {
        variants!(@ $types [$($variants)* ($name [] [$value $codec] [])] $unread $($rest)*);
    };
    (@ $types:tt $variants:tt $unread:tt $name:ident { $($fields:tt)* } = $message:ident, $($rest:tt)*) => {
        variants!(@fields $types $variants $unread [$name $message] [] { $($fields)* } $($rest)*);
    };
    (@fields $types:tt $variants:tt $unread:tt $of:tt [$($done:tt)*]
        { $name:ident: $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        variants!(@fields $types $variants $unread $of [$($done)* ($name ($name) $codec)]
            { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt $variants:tt $unread:tt $of:tt [$($done:tt)*]
        { $name:ident = $field:ident: $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        variants!(@fields $types $variants $unread $of [$($done)* ($name ($field) $codec)]
            { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt $variants:tt $unread:tt $of:tt [$($done:tt)*]
        { $name:ident = ($($field:ident),+): $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        variants!(@fields $types $variants $unread $of [$($done)* ($name ($($field),+) $codec)]
            { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt [$($variants:tt)*] $unread:tt [$name:ident $message:ident] [$($done:tt)*]
        {} $($rest:tt)*) => {
        variants!(@ $types [$($variants)* ($name [] [] [$message $($done)*])] $unread $($rest)*);
    };
    (@ [$plain:ident [$($wire:ident)::+] $of:ident $in:ident]
        [$(($name:ident [$($empty:tt)?] [$($value:ident $codec:expr)?]
            [$($message:ident $(($part:ident ($($field:ident),+) $kind:expr))*)?]))*]
        [$($why:literal $($unread:ident)+)?]) => {
        impl From<$plain> for $crate::rpc::pb::$($wire)::+ {
            fn from(plain: $plain) -> Self {
                match plain {
                    $($plain::$name $(($value))? $({ $($part),* })? => Self::$name(
                        $($crate::rpc::convert::table::empty!($empty))?
                        $($crate::rpc::convert::codec::Codec::write($codec, $value))?
                        $({
                            let written = ($($crate::rpc::convert::codec::Codec::write($kind, $part),)*);
                            #[allow(unused_parens)]
                            let ($(($($field),+),)*) = written;
                            $crate::rpc::pb::$message { $($($field),+),* }
                        })?
                    ),)*
                }
            }
        }

        impl TryFrom<$crate::rpc::pb::$($wire)::+> for $plain {
            type Error = $crate::rpc::convert::Malformed;
            fn try_from(wire: $crate::rpc::pb::$($wire)::+) -> Result<Self, Self::Error> {
                use $crate::rpc::convert::Field;
                use $crate::rpc::pb::$($wire)::+ as Wire;
                Ok(match wire {
                    $(Wire::$name($($empty)? $($value)? $($crate::rpc::pb::$message { $($($field),+),* })?) => {
                        $(
                            let of = |field| Field(stringify!($message), field);
                            let read = ($($crate::rpc::convert::codec::Codec::read(
                                $kind,
                                of($crate::rpc::convert::table::first!($($field),+)),
                                ($($field),+),
                            )?,)*);
                            let ($($part,)*) = read;
                        )?
                        $(
                            let field = Field(stringify!($of), stringify!($value));
                            let $value = $crate::rpc::convert::codec::Codec::read($codec, field, $value)?;
                        )?
                        $plain::$name $(($value))? $({ $($part),* })?
                    })*
                    $($(Wire::$unread(_))|+ => {
                        return Field(stringify!($of), stringify!($in)).wrong($why);
                    })?
                })
            }
        }
    };
}

/// An `enum` with data, and the one message that has the fields of all its variants and which of them it is.
macro_rules! flat {
    ($plain:ident = $wire:ident.$kind:ident: $($kinds:ident)::+; absent $absent:ident, $($rest:tt)*) => {
        flat!(@ [$plain $wire $kind [$($kinds)::+] $absent] [] $($rest)*);
    };
    (@ $types:tt [$($variants:tt)*] $name:ident, $($rest:tt)*) => {
        flat!(@ $types [$($variants)* ($name [])] $($rest)*);
    };
    (@ $types:tt $variants:tt $name:ident { $($fields:tt)* }, $($rest:tt)*) => {
        flat!(@fields $types $variants $name [] { $($fields)* } $($rest)*);
    };
    (@fields $types:tt $variants:tt $of:tt [$($done:tt)*]
        { $name:ident: $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        flat!(@fields $types $variants $of [$($done)* ($name ($name) $codec)] { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt $variants:tt $of:tt [$($done:tt)*]
        { $name:ident = $field:ident: $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        flat!(@fields $types $variants $of [$($done)* ($name ($field) $codec)] { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt $variants:tt $of:tt [$($done:tt)*]
        { $name:ident = ($($field:ident),+): $codec:expr $(, $($fields:tt)*)? } $($rest:tt)*) => {
        flat!(@fields $types $variants $of [$($done)* ($name ($($field),+) $codec)]
            { $($($fields)*)? } $($rest)*);
    };
    (@fields $types:tt [$($variants:tt)*] $name:ident [$($done:tt)*] {} $($rest:tt)*) => {
        flat!(@ $types [$($variants)* ($name [$($done)*])] $($rest)*);
    };
    (@ [$plain:ident $wire:ident $kind:ident [$($kinds:ident)::+] $absent:ident]
        [$(($name:ident [$(($part:ident ($($field:ident),+) $codec:expr))*]))*]) => {
        impl From<$plain> for $crate::rpc::pb::$wire {
            fn from(plain: $plain) -> Self {
                use $crate::rpc::pb::$($kinds)::+ as Kind;
                let mut wire = Self::default();
                match plain {
                    $($plain::$name { $($part),* } => {
                        wire.$kind = Kind::$name.into();
                        $(($(wire.$field),+) = $crate::rpc::convert::codec::Codec::write($codec, $part);)*
                    })*
                }
                wire
            }
        }

        impl TryFrom<$crate::rpc::pb::$wire> for $plain {
            type Error = $crate::rpc::convert::Malformed;
            fn try_from(wire: $crate::rpc::pb::$wire) -> Result<Self, Self::Error> {
                use $crate::rpc::convert::Field;
                use $crate::rpc::pb::$($kinds)::+ as Kind;
                let of = |field| Field(stringify!($wire), field);
                let kind = of(stringify!($kind));
                Ok(match Kind::try_from(wire.$kind) {
                    $(Ok(Kind::$name) => $plain::$name {
                        $($part: $crate::rpc::convert::codec::Codec::read(
                            $codec,
                            of($crate::rpc::convert::table::first!($($field),+)),
                            ($(wire.$field),+),
                        )?),*
                    },)*
                    Ok(Kind::$absent) => return kind.wrong("it is missing"),
                    Err(_) => return kind.wrong(format_args!("{} is an unknown kind", wire.$kind)),
                })
            }
        }
    };
}

/// An `enum` without data, each variant by its name, and that of a message.
macro_rules! kinds {
    ($($plain:ident = $($wire:ident)::+ { $($name:ident),+ })+) => {
        $(
            impl From<$plain> for $crate::rpc::pb::$($wire)::+ {
                fn from(plain: $plain) -> Self {
                    match plain {
                        $($plain::$name => Self::$name,)+
                    }
                }
            }

            impl From<$crate::rpc::pb::$($wire)::+> for $plain {
                fn from(wire: $crate::rpc::pb::$($wire)::+) -> Self {
                    use $crate::rpc::pb::$($wire)::+ as Wire;
                    match wire {
                        $(Wire::$name => Self::$name,)+
                    }
                }
            }
        )+
    };
}

/// An empty message.
macro_rules! empty {
    ($any:tt) => {
        Default::default()
    };
}

/// The name of the first of these.
macro_rules! first {
    ($first:ident $(, $rest:ident)*) => {
        stringify!($first)
    };
}

pub(super) use {empty, first, flat, kinds, message, variants};
