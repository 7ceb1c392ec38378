import { Button, Menu } from '@mantine/core'
import { IconArrowsDiff, IconChevronDown, IconList } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useSession, useSessions } from '~/api/queries'
import { shortcutText } from '~/parts/shortcutText'
import { StateBadge } from '~/parts/StateBadge'
import { useOffered } from '~/state/actions'
import { useView } from '~/state/store'
import classes from './header.module.css'
import { headerTexts } from './texts'

/** The menu of runs, labelled with the open run. */
export function RunMenu() {
  const { t } = useTranslation(headerTexts)
  const run = useView((view) => view.run)
  const openRun = useView((view) => view.openRun)
  const { data: session } = useSession()
  const { data: sessions = [] } = useSessions()
  const name = run === '' ? t('noRun') : (session?.name ?? '…')
  return (
    <Menu position="bottom-start" width={380} shadow="md">
      <Menu.Target>
        <Button
          variant="default"
          className={classes['run'] ?? ''}
          rightSection={<IconChevronDown size={12} />}
          justify="space-between"
          data-testid="run-menu"
          aria-label={`${t('run')}: ${name}`}
          title={name}
        >
          {name}
        </Button>
      </Menu.Target>
      <Menu.Dropdown mah="70vh" style={{ overflowY: 'auto' }}>
        {[...sessions].reverse().map((record) => (
          <Menu.Item
            key={record.id}
            data-testid="run-choice"
            data-id={record.id}
            aria-current={record.id === run}
            onClick={() => openRun(record.id)}
            rightSection={<StateBadge state={record.state} message={record.message} />}
          >
            <span className={classes['choice']} title={record.name}>
              {record.name}
            </span>
            <span className={classes['quiet']}>{t('step', { step: record.step })}</span>
          </Menu.Item>
        ))}
        {sessions.length > 0 && <Menu.Divider />}
        <CompareItem />
        <Menu.Item leftSection={<IconList size={14} />} onClick={() => openRun('')}>
          {t('runs')}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}

/** Compare the open run with another one. */
function CompareItem() {
  const action = useOffered((offered) => offered.actions['compare.with'])
  if (!action) return null
  return (
    <Menu.Item
      leftSection={<IconArrowsDiff size={14} />}
      rightSection={<kbd className={classes['quiet']}>{shortcutText(action.keys ?? '')}</kbd>}
      onClick={action.run}
      data-testid="run-compare"
    >
      {action.label}
    </Menu.Item>
  )
}
