mod error; mod tree;
