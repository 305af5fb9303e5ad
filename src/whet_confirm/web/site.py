"""The base class of the pages for a logged-in person."""

from __future__ import annotations

from whet.web.pages import SiteTemplates
from whet_confirm.notify.notifier import ConfirmNotifier
from whet_confirm.service import ConfirmService
from whet_confirm.web.accounts import TokenAccounts


class AccountPages:
    """The base of pages for a logged-in person: the service, the templates, the accounts and the channels."""

    def __init__(
        self,
        service: ConfirmService,
        pages: SiteTemplates,
        accounts: TokenAccounts,
        notifier: ConfirmNotifier,
    ) -> None:
        self._service = service
        self._pages = pages
        self._accounts = accounts
        self._notifier = notifier
