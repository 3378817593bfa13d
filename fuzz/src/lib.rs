//! What the fuzz targets share: the way from objects to a manifest with what must hold of every
//! manifest, and a mutator that knows YAML and JSON.

pub mod mutate;
pub mod whole;
