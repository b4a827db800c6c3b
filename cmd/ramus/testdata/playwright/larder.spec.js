import { expect, test } from '@playwright/test';

test('something is put in', async ({ page }) => {
  await page.goto('/');
  await expect(page).toHaveTitle('Larder');
  await page.getByRole('button', { name: 'Add' }).click();
  await expect(page.getByRole('listitem')).toHaveText('Rice');
});

test('a picture is taken', async ({ page }) => {
  await page.goto('/');
  expect((await page.screenshot()).length).toBeGreaterThan(1000);
});
