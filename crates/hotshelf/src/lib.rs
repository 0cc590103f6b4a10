//! hotshelf
