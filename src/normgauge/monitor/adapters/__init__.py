"""Neighbours: callbacks for training libraries, sinks for experiment trackers; each loads its own package when asked.

lightning.py     MonitorCallback for Lightning
transformers.py  MonitorCallback for the Trainer of Hugging Face
tensorboard.py   TensorBoardSink
wandb.py         WandbSink
mlflow.py        MlflowSink
scalars.py       what a sink logs of a record
"""
