"""Small, readable learners in plain torch whose experience lies in relive's buffers: one file each, top to bottom."""
