import { Kbd, Modal, Text } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { shortcutText } from '~/parts/shortcutText'
import { partTexts } from '~/parts/texts'
import { useOffered, type Action } from '~/state/actions'
import { useView } from '~/state/store'
import classes from './dialogs.module.css'
import { dialogTexts } from './texts'

/** The list of all keyboard shortcuts. */
export function Shortcuts() {
  const { t } = useTranslation(dialogTexts)
  const { t: close } = useTranslation(partTexts)
  const isOpen = useView((view) => view.dialog === 'shortcuts')
  const set = useView((view) => view.set)
  const actions = useOffered((offered) => offered.actions)
  const groups = new Map<string, Action[]>()
  for (const action of Object.values(actions)) {
    if (action.keys === undefined) continue
    groups.set(action.group, [...(groups.get(action.group) ?? []), action])
  }
  return (
    <Modal
      opened={isOpen}
      onClose={() => set({ dialog: 'none' })}
      title={t('shortcuts')}
      size={720}
      closeButtonProps={{ 'aria-label': close('close') }}
    >
      <div data-testid="shortcuts">
        <Text c="var(--quiet)" mb="sm">
          {t('shortcutsText')}
        </Text>
        <div className={classes['groups']}>
          {[...groups].map(([group, listed]) => (
            <section key={group}>
              <h3>{group}</h3>
              <dl>
                {listed.map((action) => (
                  <div key={action.id} data-off={action.disabled !== undefined} title={action.disabled}>
                    <dt>{action.label}</dt>
                    <dd>
                      {shortcutText(action.keys ?? '')
                        .split(' ')
                        .map((key) => (
                          <Kbd key={key} size="xs">
                            {key}
                          </Kbd>
                        ))}
                    </dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
        </div>
      </div>
    </Modal>
  )
}
