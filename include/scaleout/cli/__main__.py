from scaleout.cli.main import main

main()
