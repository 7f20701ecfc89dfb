-- dynoxide looks for the last number of a table at each write and reads on from a
-- number at each poll: both by a search through all records, without this index. It
-- has all columns of these queries and of DescribeStream's, so one is enough.
CREATE INDEX inorder_stream ON _stream_records (table_name, CAST(sequence_number AS INTEGER), shard_id, sequence_number);

-- A stream keeps its records for 24 hours, as in AWS. Each new record takes with it up
-- to two of its table that are older. A table's newest record stays, whatever its
-- age: the next number is counted from it.
CREATE TRIGGER inorder_trim AFTER INSERT ON _stream_records BEGIN
    DELETE FROM _stream_records WHERE id IN (
        SELECT id FROM (
            SELECT id, created_at FROM _stream_records WHERE table_name = new.table_name
            ORDER BY CAST(sequence_number AS INTEGER) LIMIT 2
        ) WHERE created_at < new.created_at - 24 * 60 * 60
    );
END;
