"""Problems declared in JSON files, turned into problem classes."""
