"""The ModelArts v1 dialect: its wire types, its tables, its operations."""
