//! File form and API form of the same template, and what must stay apart.
