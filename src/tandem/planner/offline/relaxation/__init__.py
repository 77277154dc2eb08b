"""The linear programmes of blocks: shares of layers and of KV are free, all else is given."""
