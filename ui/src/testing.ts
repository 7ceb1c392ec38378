import '~/i18n'
