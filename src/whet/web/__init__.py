"""What any page of ours needs: login, sessions, forms, assets, and the guard before them. Knows no product."""
