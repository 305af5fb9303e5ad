"""What any page of ours needs: login, sessions, forms, assets, the guard before them. Knows no product."""
