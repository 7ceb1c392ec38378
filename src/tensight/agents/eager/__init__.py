"""What every framework has in common that runs operators as the script calls them: written once, for all adapters."""
