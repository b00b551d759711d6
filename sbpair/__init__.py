"""Paired-namespace high availability for Azure Service Bus."""
