import { useComputedColorScheme, useMantineColorScheme } from '@mantine/core'
import { IconKeyboard, IconMoon, IconSearch, IconSun } from '~/parts/icons'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { setLanguage } from '~/i18n'
import { palette } from '~/panels/dialogs/paletteStore'
import { ActionButton } from '~/parts/ActionButton'
import { shortcutText } from '~/parts/shortcutText'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import classes from './header.module.css'
import { headerTexts } from './texts'

/** Search, shortcuts, language and theme, which belong to the page, not to a run. */
export function Preferences() {
  const { t, i18n } = useTranslation(headerTexts)
  const { setColorScheme } = useMantineColorScheme()
  const scheme = useComputedColorScheme('light')
  const set = useView((view) => view.set)
  const openRun = useView((view) => view.openRun)
  const language = i18n.language
  const actions = useMemo<Action[]>(
    () =>
      [
        {
          id: 'page.palette',
          label: t('action.palette'),
          keys: 'mod+K',
          isEverywhere: true,
          run: () => palette.toggle(),
        },
        { id: 'page.runs', label: t('runs'), run: () => openRun('') },
        {
          id: 'page.shortcuts',
          label: t('action.shortcuts'),
          keys: 'shift+?',
          run: () => set({ dialog: 'shortcuts' }),
        },
        {
          id: 'page.theme',
          label: t('action.theme'),
          keys: 'alt+shift+T',
          run: () => setColorScheme(scheme === 'light' ? 'dark' : 'light'),
        },
        {
          id: 'page.language',
          label: t('action.language'),
          keys: 'alt+shift+L',
          run: () => setLanguage(language === 'en' ? 'zh' : 'en'),
        },
      ].map((action) => ({ ...action, group: t('group.page') })),
    [t, language, scheme, set, setColorScheme, openRun],
  )
  useActions(actions)
  return (
    <div className={classes['preferences']}>
      <button
        type="button"
        className={classes['search']}
        onClick={() => palette.open()}
        aria-label={`${t('action.palette')}, ${t('search')} ${shortcutText('mod+K')}`}
      >
        <IconSearch size={13} aria-hidden />
        <span className={classes['searchWord']}>{t('search')}</span> <kbd>{shortcutText('mod+K')}</kbd>
      </button>
      <ActionButton id="page.shortcuts" icon={<IconKeyboard size={16} />} />
      <ActionButton
        id="page.language"
        icon={<span className={classes['language']}>{language === 'en' ? '中' : 'EN'}</span>}
      />
      <ActionButton
        id="page.theme"
        icon={scheme === 'light' ? <IconMoon size={16} /> : <IconSun size={16} />}
      />
    </div>
  )
}
