"""Problems declared in JSON: from a file that says where the columns are to a class like others."""
