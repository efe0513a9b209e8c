"""Tables, plots and the HTML report of a sweep."""
