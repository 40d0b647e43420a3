"""The UI kit of the console, for the admin pages of every app: site, help, forms, tables of logs, filters, panels and charts.

Only this package, its styles and its templates name the theme.
"""
