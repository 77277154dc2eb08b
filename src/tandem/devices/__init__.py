"""Memory, queues and signals of the machines that programs run on."""
