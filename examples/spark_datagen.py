"""Generation of data by Spark: each partition is a task of `t2t-datagen --num_tasks=N`.

    pip install pyspark
    spark-submit examples/spark_datagen.py dates_to_iso /shared/data /shared/raw 8

All executors need this library, in the Python that PYSPARK_PYTHON names (or else `python3` of their
PATH), and see both folders under these paths.  The shards are those of one process, byte for byte;
Spark runs a task again whose executor was lost, and none that has ended.
"""

import sys

from pyspark.sql import SparkSession

import t2t_torch as t2t


def generate(task, problem, data_dir, tmp_dir, count):
    """Generates one of the parts; the last one to end puts the data together."""
    options = {"task_id": task, "num_tasks": count, "num_concurrent_processes": 1}
    t2t.generate(problem, data_dir, tmp_dir, **options)
    return task


if __name__ == "__main__":
    what, count = sys.argv[1:4], int(sys.argv[4])
    context = SparkSession.builder.appName("t2t-datagen").getOrCreate().sparkContext
    tasks = context.parallelize(range(count), count)
    print("done:", sorted(tasks.map(lambda task: generate(task, *what, count)).collect()))
